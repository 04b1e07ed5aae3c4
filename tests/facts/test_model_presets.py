"""conf/model: every preset has the keys it must have, its config is the catalog's, and the alias composes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

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
    "config": dict,
    "source": str,
    "facts_from": type(None),
    "revision": (str, type(None)),
    "args": dict,
}
OF_THE_CATALOG_ALONE = ("layer_types_count",)
"""A summary that the catalog makes of ``layer_types``; no config.json has it."""


def load(name: str) -> Mapping[str, Any]:
    return composer().preset("model", name).node


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
    assert {key for part in composer().preset("model", name).parts for key in part.tree} == set(TYPES)
    for key, kind in TYPES.items():
        assert isinstance(preset[key], kind), key
    assert preset["name"] == name
    assert all(isinstance(one, str) for one in preset["config"]["architectures"])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_described_and_cites_its_source(name: str) -> None:
    comments = [line for line in (FOLDER / f"{name}.yaml").read_text("utf-8").splitlines() if line.startswith("#")]
    assert not comments[0].startswith("# source:")
    assert any(line.startswith("# source: ") for line in comments)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_a_preset_states_the_config_that_the_catalog_states(name: str) -> None:
    fact = {key: value for key, value in CATALOG[name]["config"].items() if key not in OF_THE_CATALOG_ALONE}
    preset = load(name)
    assert preset["config"] == merged(fact, ADDITIONS.get(name, {}).get("config", {}))
    assert preset["model_path"] == CATALOG[name]["hf_id"]


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
    config = load(name)["config"]
    assert ("vision_config" in config) == config["architectures"][0].endswith("ForConditionalGeneration")


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
