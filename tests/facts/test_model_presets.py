"""conf/model: every preset has the keys it must have, its config is the catalog's, and the alias composes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.architecture.published_checkpoints import CHECKPOINTS
from sglang_hydra.arguments.tables.table import first_release_of
from sglang_hydra.facts.defaults import as_read
from sglang_hydra.facts.stated_config import FOLDER as CONFIGS
from sglang_hydra.facts.stated_config import QUANTIZATION, preset_facts
from sglang_hydra.text.errors import ConfigError
from tests.facts.facts_fakes import catalog
from tests.plans import composer

FOLDER = Path(__file__).parents[2] / "conf" / "model"
CATALOG = catalog("models.json")["models"]
ADDITIONS = catalog("model_additions.json")["models"]
NOT_MODELS = ("gpt_oss", "unset")
PRESETS = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem not in NOT_MODELS)
ASKED_FOR = (
    *("deepseek_v3", "deepseek_r1", "gpt_oss_20b", "gpt_oss_120b", "llama_3_1_8b", "llama_3_1_70b", "llama_4_scout"),
    *("qwen3_8b", "qwen3_235b_a22b", "qwen2_5_vl_7b", "gemma_3_27b", "mixtral_8x7b", "tiny"),
)
TYPES: dict[str, Any] = {
    "name": str,
    "model_path": str,
    "variant": type(None),
    "config_file": (str, type(None)),
    "config": (dict, type(None)),
    "source": str,
    "facts_from": type(None),
    "revision": (str, type(None)),
    "args": dict,
}
OF_THE_CATALOG_ALONE = ("layer_types_count",)
"""A summary that the catalog makes of ``layer_types``; no config.json has it."""


def load(name: str) -> Mapping[str, Any]:
    return composer().preset("model", name).node


def stated(name: str) -> Mapping[str, Any]:
    facts = preset_facts(load(name), name)
    assert facts is not None
    assert facts.config is not None
    return facts.config


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for key, value in above.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


def test_the_models_that_people_ask_for_are_there() -> None:
    assert set(ASKED_FOR) <= set(PRESETS)
    assert set(CATALOG) <= set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_every_key_with_its_type_and_no_other(name: str) -> None:
    preset = load(name)
    assert list(preset) == list(TYPES)
    written = {key for part in composer().preset("model", name).parts for key in part.tree}
    assert written | {"config_file", "variant"} == set(TYPES)
    for key, kind in TYPES.items():
        assert isinstance(preset[key], kind), key
    assert preset["name"] == name
    assert all(isinstance(one, str) for one in stated(name)["architectures"])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_described_and_cites_its_source(name: str) -> None:
    comments = [line for line in (FOLDER / f"{name}.yaml").read_text("utf-8").splitlines() if line.startswith("#")]
    assert not comments[0].startswith("# source:")
    assert any(line.startswith("# source: ") for line in comments)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_a_preset_states_the_config_that_the_catalog_states(name: str) -> None:
    fact = {key: value for key, value in CATALOG[name]["config"].items() if key not in OF_THE_CATALOG_ALONE}
    assert load(name)["config"] == merged(fact, ADDITIONS.get(name, {}).get("config", {}))
    assert load(name)["model_path"] == CATALOG[name]["hf_id"]


def test_what_is_added_to_the_catalog_contradicts_nothing_in_it() -> None:
    def conflicts(below: Mapping[str, Any], above: Mapping[str, Any]) -> list[str]:
        shared = [key for key in above if key in below]
        return [
            key
            for key in shared
            if not (
                isinstance(below[key], dict) and isinstance(above[key], dict) and not conflicts(below[key], above[key])
            )
        ]

    for name, added in ADDITIONS.items():
        assert added["source"]
        assert conflicts(CATALOG[name]["config"], added["config"]) == []


def test_only_models_whose_every_server_needs_a_flag_bring_one() -> None:
    brought = {name: load(name)["args"] for name in PRESETS if load(name)["args"]}
    assert brought == {
        "kimi_k2": {"trust_remote_code": True},
        "llama_4_maverick": {"attention_backend": "triton"},
        "llama_4_scout": {"attention_backend": "triton", "context_length": 1000000},
        "mimo_v2_5": {"trust_remote_code": True},
        "tiny": {"served_model_name": "tiny"},
    }
    commands = CATALOG["kimi_k2"]["deployments"]
    assert commands
    assert all(command["flags"]["trust_remote_code"] for command in commands)
    assert all(command["flags"]["context_length"] for command in CATALOG["llama_4_scout"]["deployments"])


PAIRS = FOLDER.parent / "gpu_model"


@pytest.mark.parametrize("file", sorted(PAIRS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_pair_is_of_a_known_class_and_model_and_cites_its_source(file: Path) -> None:
    gpu, _, model = file.stem.partition("-")
    assert (FOLDER.parent / "gpu" / f"{gpu}.yaml").exists()
    assert model in PRESETS
    files = [Path(part.file) for part in composer().preset("gpu_model", file.stem).parts]
    assert any(line.startswith("# source: ") for used in files for line in used.read_text("utf-8").splitlines())


def test_llama_4_has_the_backend_of_its_gpu() -> None:
    def chosen(gpu: str) -> str:
        pair = f"{gpu}-llama_4_scout"
        has_pair = pair in composer().options("gpu_model")
        own = composer().preset("gpu_model", pair).node if has_pair else load("llama_4_scout")["args"]
        return str(own["attention_backend"])

    assert {gpu: chosen(gpu) for gpu in ("h100", "h20", "mi300x", "b200", "l40s")} == {
        "h100": "fa3",
        "h20": "fa3",
        "mi300x": "aiter",
        "b200": "triton",
        "l40s": "triton",
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_vision_language_preset_describes_its_vision_tower(name: str) -> None:
    config = stated(name)
    sees = config["architectures"][0].endswith("ForConditionalGeneration") or name == "mimo_v2_5"
    assert ("vision_config" in config) == sees


def test_gpt_oss_composes_to_the_120b() -> None:
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(FOLDER.parent), version_base="1.3"):
        alias = compose(overrides=["+model=gpt_oss"])
        named = compose(overrides=["+model=gpt_oss_120b"])
    assert alias == named
    assert alias.model.name == "gpt_oss_120b"


def test_tiny_describes_the_checkpoint_that_is_made_here() -> None:
    from sglang_hydra.facts.tiny import TINY_CONFIG

    config = load("tiny")["config"]
    assert config == {key: TINY_CONFIG[key] for key in config}


def test_every_whole_config_json_has_its_source_and_serves_a_preset_or_a_variant() -> None:
    folder = FOLDER.parent / CONFIGS
    sources = json.loads((folder / "sources.json").read_text("utf-8"))
    files = {path.name for path in folder.glob("*.json")} - {"sources.json"}
    assert set(sources) == files
    for name, row in sources.items():
        assert set(row) - {"note"} == {"repository", "at", "path", "licence", "read"}, name
        assert row["licence"], name
    whole = {name for name in files if not name.endswith(f".{QUANTIZATION}")}
    served = {load(name)["config_file"] for name in PRESETS} | {one.config_file for one in CHECKPOINTS}
    assert whole == served - {None}
    assert {name.replace(f".{QUANTIZATION}", ".json") for name in files - whole} <= whole


def test_a_whole_config_json_is_whole() -> None:
    for path in sorted((FOLDER.parent / CONFIGS).glob("*--*.json")):
        if path.name.endswith(f".{QUANTIZATION}"):
            continue
        config = json.loads(path.read_text("utf-8"))
        assert config["architectures"], path.name
        assert config["model_type"], path.name
        assert config.get("quantization_config", {}) is not None, path.name


@pytest.mark.parametrize("name", ["../model/qwen3_8b.yaml", "nothing.json", "/etc/passwd"])
def test_a_config_file_that_is_none_of_ours_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="FCT004") as refused:
        preset_facts({**load("qwen3_8b"), "config_file": name}, "x")
    assert "model.facts_from=" in str(refused.value.findings[0].hint)


def test_fields_of_a_preset_lie_over_its_whole_config_json_and_a_null_format_takes_it_away() -> None:
    node = {
        **load("deepseek_v3"),
        "config": {"architectures": ["X"], "rope_scaling": {"factor": 2}, "quantization_config": None},
    }
    facts = preset_facts(node, "x")
    assert facts is not None
    assert facts.config is not None
    assert facts.config["rope_scaling"] == {**stated("deepseek_v3")["rope_scaling"], "factor": 2}
    assert "quantization_config" not in facts.config
    assert facts.identity == node["config"]
    assert "quantization_config" in stated("deepseek_v3")


OVER_THE_FILE: dict[str, Any] = {
    "deepseek_v3_1": {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
    "gemma_2_9b": {"torch_dtype": "bfloat16"},
    "gemma_4_31b": {"quantization_config": None},
    "grok_2": {"num_hidden_layers": 64},
    "kimi_k2_6": {"eos_token_id": 163586},
    "kimi_k2_7_code": {"eos_token_id": 163586},
    "qwen2_5_7b": {"max_position_embeddings": 32768, "eos_token_id": 151645},
    "qwen2_5_vl_7b": {"head_dim": 128},
    "qwen3_coder_30b": {"max_position_embeddings": 262144},
    "qwen3_6_27b": {"quantization_config": None},
    "qwen3_8_27b": {"quantization_config": None},
    "qwen3_6_35b": {"quantization_config": None},
}
"""What a preset's excerpt says that its whole file, of another checkpoint or with less in it, does not."""


@pytest.mark.parametrize("name", [name for name in PRESETS if load(name)["config_file"] is not None])
def test_the_excerpt_of_a_preset_says_what_its_whole_config_json_says(name: str) -> None:
    facts = preset_facts({**load(name), "config": None}, name)
    assert facts is not None
    read = as_read(facts, load(name)["model_path"], trust_remote_code=True).config or {}
    assert merged(read, load(name)["config"] or {}) == merged(read, OVER_THE_FILE.get(name, {}))


def test_a_preset_of_fields_alone_is_an_excerpt_as_before() -> None:
    facts = preset_facts({**load("tiny"), "config": {"hidden_size": 8}}, "x")
    assert facts is not None
    assert as_read(facts, "x").config == {"hidden_size": 8}


def test_a_whole_config_json_is_read_as_its_class_reads_it_and_kept_as_stated() -> None:
    facts = preset_facts(load("gemma_3_27b"), "x")
    assert facts is not None
    read = as_read(facts, "google/gemma-3-27b-it")
    assert read.config is not None
    assert read.config["text_config"]["vocab_size"] == 262208
    assert read.extra["stated"] == facts.config


def test_a_format_that_stands_in_hf_quant_config_json_alone_is_the_models_format() -> None:
    facts = preset_facts(load("nemotron_3_super_nvfp4"), "x")
    assert facts is not None
    assert facts.config is not None
    assert facts.config["quantization_config"]["quant_algo"] == "MIXED_PRECISION"
    files = facts.extra["files"]
    told = json.loads(files["config.json"])["quantization_config"]  # of a mixed format: releases read its layers there
    assert (told["quant_method"], told["quant_algo"]) == ("modelopt", "MIXED_PRECISION")
    fp8 = preset_facts(load("nemotron_3_super_fp8"), "x")
    assert fp8 is not None
    assert "quantization_config" not in json.loads(fp8.extra["files"]["config.json"])
    assert json.loads(files["hf_quant_config.json"])["quantization"]["quant_algo"] == "MIXED_PRECISION"


def test_every_preset_is_served_by_some_release() -> None:
    assert len(PRESETS) >= 45
    assert [name for name in PRESETS if first_release_of(stated(name)["architectures"]) is None] == []
