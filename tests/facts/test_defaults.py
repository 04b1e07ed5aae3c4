"""What SGLang 0.5.2 makes of a config.json that leaves fields out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.architecture.reading_layers import KNOWN
from sglang_hydra.facts.defaults import as_read, completed, left_out
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.planning.making.make import plan
from sglang_hydra.planning.plan import Plan
from tests.conformance_configs import MACHINES, differences, recorded

SIZES = dict.fromkeys(
    ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings"), 16
)
QWEN2_VL = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", **SIZES}
LLAVA = {"architectures": ["LlavaQwenForCausalLM"], "model_type": "llava", **SIZES}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **SIZES}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", **SIZES}
CODE = {"AutoConfig": "configuration.Config"}


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        (SIZES, ()),
        ({**SIZES, "vision_config": {"num_hidden_layers": 1, "hidden_size": 1}}, ()),
        (
            {**SIZES, "vision_config": {"depth": 32}},
            ("vision_config.num_hidden_layers", "vision_config.hidden_size"),
        ),
        ({**SIZES, "vision_config": {"hidden_size": 1}}, ("vision_config.num_hidden_layers",)),
        ({**SIZES, "architectures": ["Llama4ForConditionalGeneration"]}, ("vision_config",)),
        ({**SIZES, "architectures": ["LlavaLlamaForCausalLM"]}, ("vision_config",)),
        ({**SIZES, "architectures": 5}, ()),
        ({key: 1 for key in SIZES if key != "vocab_size"}, ("vocab_size",)),
        ({"text_config": {key: 1 for key in SIZES if key != "vocab_size"}}, ("text_config.vocab_size",)),
        ({"text_config": {key: 1 for key in SIZES if key != "vocab_size"}, "vocab_size": 1}, ()),
        ({"text_config": None}, tuple(f"text_config.{key}" for key in SIZES)),
    ],
)
def test_these_fields_are_left_out(config: Mapping[str, Any], missing: tuple[str, ...]) -> None:
    assert left_out(config) == missing


@pytest.mark.parametrize(
    ("stated", "path", "value"),
    [
        ({"model_type": "llama"}, "num_key_value_heads", 32),
        ({"model_type": "llama", "num_attention_heads": 40}, "num_key_value_heads", 40),
        ({"model_type": "llama", "hidden_size": 5120, "num_attention_heads": 40}, "head_dim", 128),
        ({"model_type": "mistral", "num_attention_heads": 40}, "num_key_value_heads", 8),
        ({"model_type": "mistral", "num_attention_heads": 40, "num_key_value_heads": None}, "num_key_value_heads", 40),
        ({"model_type": "gpt2", "n_embd": 1024}, "hidden_size", 1024),
        ({"model_type": "gpt2", "hidden_size": 1024}, "n_embd", 1024),
        ({"model_type": "llava"}, "vision_config.hidden_size", 1024),
        ({"model_type": "llava", "vision_config": None}, "vision_config.hidden_size", 1024),
        ({"model_type": "llava", "vision_config": {}}, "vision_config.hidden_size", 768),
        ({"model_type": "llava", "vision_config": {"model_type": "pixtral"}}, "vision_config.num_hidden_layers", 24),
        ({"model_type": "llava", "text_config": {"model_type": "mistral"}}, "text_config.num_key_value_heads", 8),
        ({"model_type": "qwen2_vl", "vision_config": {"depth": 2}}, "vision_config.hidden_size", 3584),
        ({"model_type": "qwen2_vl", "num_attention_heads": 12}, "text_config.num_attention_heads", 12),
        ({"model_type": "mllama"}, "vision_config.hidden_size", 1280),
        ({"model_type": "deepseek_vl_v2"}, "architectures", ["DeepseekVL2ForCausalLM"]),
        (
            {"model_type": "internvl_chat", "llm_config": {"architectures": ["Qwen2ForCausalLM"], "hidden_size": 96}},
            "hidden_size",
            96,
        ),
        (
            {"model_type": "mistral3", "text_config": {"model_type": "mistral", "quantization_config": {"a": 1}}},
            "quantization_config",
            {"a": 1},
        ),
    ],
)
def test_a_missing_key_becomes_what_its_class_makes_of_it(stated: dict[str, Any], path: str, value: Any) -> None:
    made: Any = completed(stated, "org/name").config
    for name in path.split("."):
        made = made[name]
    assert made == value


@pytest.mark.parametrize(
    ("config", "trusted", "says"),
    [
        ({"model_type": "llava_qwen"}, False, "transformers 4.56.1 knows no model_type 'llava_qwen'"),
        ({"model_type": None}, False, "knows no model_type None"),
        ({"model_type": ["llama"]}, True, "knows no model_type ['llama']"),
        ({}, False, "it states no model_type"),
        ({"model_type": "minicpmv", "auto_map": CODE}, False, "read by the checkpoint's own code alone"),
        ({"model_type": "llava", "text_config": {"model_type": "x"}}, False, "knows no text_config.model_type 'x'"),
        ({"model_type": "internvl_chat", "llm_config": {}}, False, "no llm_config whose first architecture is None"),
        ({"model_type": "cohere2", "num_hidden_layers": None}, False, "takes no null for num_hidden_layers"),
    ],
)
def test_a_config_that_no_class_reads_is_refused(config: dict[str, Any], trusted: bool, says: str) -> None:
    made = completed(config, "org/name", trust_remote_code=trusted)
    assert made.refused is not None
    assert says in made.refused
    assert made.config == config


def test_a_config_without_a_type_is_read_by_the_longest_one_in_the_name_of_the_model() -> None:
    assert completed({}, "org/Tiny-llama-gpt_neox").class_name == "GPTNeoXConfig"
    assert completed({}, "org/Tiny-llama").class_name == "LlamaConfig"


def test_what_a_checkpoint_s_own_code_adds_is_unknown() -> None:
    made = completed({"model_type": "minicpmv", "auto_map": CODE, "hidden_size": 4}, "x", trust_remote_code=True)
    assert (made.class_name, made.refused, made.assumed) == (None, None, ())
    assert "hidden_size" not in made.unknown
    assert "vocab_size" in made.unknown
    # SGLang reads these by its own class in the end, whatever code they bring.
    assert completed({"model_type": "kimi_vl", "auto_map": CODE}, "x", trust_remote_code=True).class_name


def test_what_the_file_states_stays() -> None:
    stated = {"model_type": "llama", "hidden_size": 12, "vision_config": {"x": 1}, "unheard_of": [1]}
    assert {**completed(stated, "x").config, **stated} == completed(stated, "x").config
    assert completed(completed(stated, "x").config, "x").config == completed(stated, "x").config


def test_an_excerpt_stays_as_it_is() -> None:
    excerpt = ModelFacts({"model_type": "llama"})
    assert as_read(excerpt, "x") is excerpt
    assert as_read(ModelFacts(None), "x").config is None
    whole = as_read(ModelFacts({"model_type": "llama", "transformers_version": "4.56.1"}), "x")
    assert whole.config is not None
    assert (whole.config["hidden_size"], whole.config_class) == (4096, "LlamaConfig")


def planned(folder: Path, config: Mapping[str, Any], *words: str) -> Plan:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return plan([f"model_path={folder}", "random_seed=1", *words], env={})


@pytest.mark.parametrize(
    ("config", "gpu", "fraction"),
    [
        (LLAVA, "h100", 0.874 * 0.95),
        ({**LLAVA, "architectures": ["LlavaLlamaForCausalLM"]}, "cpu", 0.88 * 0.95),
        ({**QWEN2_VL, "vision_config": {"depth": 32}}, "cpu", 0.6688),
        ({"architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama"}, "h100", 0.740),
    ],
)
def test_the_vision_tower_of_the_class_counts(
    config: Mapping[str, Any], gpu: str, fraction: float, tmp_path: Path
) -> None:
    made = planned(tmp_path, config, f"gpu={gpu}")
    assert made.values["mem_fraction_static"] == pytest.approx(fraction, abs=0.0005)
    assert "HUB006" in {finding.id for finding in made.findings}


NAMED = """json_model_override_args='{"architectures":["LlamaForCausalLM"]}'"""


@pytest.mark.parametrize(
    ("config", "words", "id"),
    [
        ({**LLAMA, "architectures": []}, (), "MDL001"),
        ({**LLAMA, "architectures": []}, (NAMED,), "MDL001"),
        ({**LLAMA, "architectures": []}, (NAMED, "mem_fraction_static=0.8"), "MDL003"),
        ({**LLAMA, "architectures": [None]}, (NAMED,), "MDL001"),
        ({**LLAMA, "architectures": None}, (), "MDL001"),
        ({**LLAMA, "architectures": None}, (NAMED,), None),
        ({**LLAMA, "model_type": "other"}, ("mem_fraction_static=0.8",), "MDL014"),
        ({**LLAMA, "model_type": "other", "auto_map": CODE}, (), "MDL014"),
        ({**LLAMA, "model_type": "other", "auto_map": CODE}, ("trust_remote_code=true",), None),
        ({**LLAMA, "num_attention_heads": None}, ("mem_fraction_static=0.8",), "MDL014"),
        ({**LLAMA, "num_attention_heads": None, "head_dim": 8}, (), "MDL016"),
        ({**LLAMA, "num_attention_heads": None, "head_dim": 8}, ("mem_fraction_static=0.8",), None),
        ({**LLAMA, "num_attention_heads": 0}, (), "MDL016"),
        ({**DEEPSEEK, "qk_nope_head_dim": "a", "head_dim": 8}, (), "MDL016"),
        ({key: value for key, value in LLAVA.items() if key != "vocab_size"}, (), "MDL016"),
        (QWEN2_VL, ("""json_model_override_args='{"text_config":{"num_attention_heads":4}}'""",), "MDL016"),
        ({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}, ("gpu=cpu",), "MDL015"),
        ({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}, ("gpu=mi300x",), None),
        ({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}, ("gpu=cpu", "engine=transformers"), None),
        ({**LLAMA, "model_type": "other"}, ("gpu=cpu", "engine=transformers"), None),
        ({**LLAMA, "model_type": "other"}, ("engine.version=0.5.23",), None),
    ],
)  # fmt: skip
def test_what_the_real_class_refuses_is_refused(
    config: Mapping[str, Any], words: tuple[str, ...], id: str | None, tmp_path: Path
) -> None:
    made = planned(tmp_path, config, *(() if any(word.startswith("gpu=") for word in words) else ("gpu=h100",)), *words)
    refusals = {finding.id for finding in made.resolution.findings if finding.level == "error"}
    assert refusals == (set() if id is None else {id})
    assert made.resolution.ok is (id is None)


def test_what_is_unknown_of_a_vision_tower_is_a_warning(tmp_path: Path) -> None:
    config = {**SIZES, "architectures": ["MiniCPMV"], "model_type": "minicpmv", "auto_map": CODE}
    made = planned(tmp_path, config, "gpu=h100", "trust_remote_code=true")
    found = [finding for finding in made.findings if finding.id == "HUB005"]
    assert [finding.level for finding in found] == ["warning"]
    assert "vision_config" in found[0].message


def test_the_table_names_the_releases_that_it_was_recorded_from() -> None:
    folder = Path(__file__).parents[2] / "sglang_hydra" / "facts"
    table = json.loads((folder / "config_defaults.json").read_text("utf-8"))
    assert table["versions"] == {"sglang": "0.5.2", "transformers": "4.56.1"}
    assert {"llama", "qwen2_vl", "internvl_chat", "step3_vl"} <= set(table["types"])
    named = {part for record in table["classes"].values() for part in record.get("parts", {})}
    assert {"text_config", "vision_config", "language_config", "llm_config", "audio_config"} <= named
    assert len(KNOWN) > 90


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_every_recorded_folder_is_planned_as_the_release_reads_it(machine: str) -> None:
    records = recorded()
    assert len(records) > 3000
    assert sum(record["expected"][machine]["ok"] for record in records) > len(records) // 2
    assert [found for record in records if (found := differences(record, machine)) is not None] == []
