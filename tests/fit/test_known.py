"""Reading config.json: every spelling, class defaults of complete files only, and values that cannot be sizes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from sglang_hydra import ConfigError, ModelFacts
from sglang_hydra.architecture.decoder import FULL, LINEAR
from sglang_hydra.architecture.known import Fields, Missing, text_part
from sglang_hydra.architecture.reading import _mixers
from sglang_hydra.fit.sizing import fit
from tests.fit.machines import REPOSITORY, dense, gpu, sized


@pytest.mark.parametrize("value", ["many", -1, 1.5, True, [8], {}])
def test_a_value_that_is_no_size_names_file_and_field(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        sized("h100", dense(num_hidden_layers=value))
    (finding,) = caught.value.findings
    assert finding.id == "FIT010"
    assert finding.message.startswith("small/config.json: num_hidden_layers is ")


BLOCK = {"attention": {"no_op": False}, "ffn": {"no_op": False, "ffn_mult": 2.5}}
FP8 = {"quant_method": "fp8"}
DEEPSEEK = {"n_routed_experts": 8, "moe_intermediate_size": 512, "first_k_dense_replace": 0}
INFINITY, NO_NUMBER = float("inf"), float("nan")
NO_FACTORS: list[Any] = [INFINITY, NO_NUMBER, "x", -2, 0, [2], True, 10**400]
NO_BLOCKS: list[Any] = [[], {}, "x", 3, [3], [{}], [BLOCK, None]]
NO_SIZES: list[Any] = [[0, 0], [128], [128, -1], [128, 128, 1], "128", []]
NO_STEPS: list[Any] = [0, -1, "x", [1, "x"], INFINITY]
GDN = {"linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64, "linear_value_head_dim": 64}
GDN |= {"linear_conv_kernel_dim": 4, "full_attention_interval": 4}  # type: ignore[dict-item]
GROUPS: dict[str, Any] = {"quant_method": "compressed-tensors"}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
INT4_GROUP = {**GROUPS, "config_groups": {"a": {"targets": ["Linear"], "weights": INT4}}}
NO_FLAGS: list[Any] = ["no", 2, [], 1.0, NO_NUMBER]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        *[({"rope_scaling": {"rope_type": "yarn", "factor": value}}, "rope_scaling.factor")
          for value in NO_FACTORS],
        *[({"partial_rotary_factor": value}, "partial_rotary_factor") for value in (NO_NUMBER, INFINITY, "half")],
        *[({"block_configs": value}, "block_configs") for value in NO_BLOCKS],
        *[({"block_configs": [{**BLOCK, "ffn": {"no_op": False, "ffn_mult": value}}]}, "block_configs.ffn.ffn_mult")
          for value in (INFINITY, NO_NUMBER, -1, "x")],
        ({"block_configs": [{**BLOCK, "attention": {"no_op": "no"}}]}, "block_configs.attention.no_op"),
        *[({"quantization_config": {**FP8, "weight_block_size": value}}, "quantization_config.weight_block_size")
          for value in NO_SIZES],
        *[({**DEEPSEEK, "moe_layer_freq": value}, "moe_layer_freq") for value in NO_STEPS],
        ({**DEEPSEEK, "n_routed_experts": []}, "n_routed_experts"),
        ({"num_experts": 8, "moe_layers_enum": "3,x"}, "moe_layers_enum"),
        *[({"tie_word_embeddings": value}, "tie_word_embeddings") for value in NO_FLAGS],
        ({"architectures": ["MixtralForCausalLM"], "tie_word_embeddings": "no"}, "tie_word_embeddings"),
        *[({"num_hidden_layers": value}, "num_hidden_layers") for value in (0, INFINITY, NO_NUMBER, 1e300, 10**400)],
        ({"max_position_embeddings": 10**400}, "max_position_embeddings"),
        *[({"hybrid_override_pattern": value}, "hybrid_override_pattern") for value in ("MX*", "")],
        ({"layers_block_type": ["mlp", "dance"]}, "layers_block_type"),
        ({"intermediate_size": [4096, "x", 4096, 4096]}, "intermediate_size"),
        ({**GDN, "linear_num_value_heads": "many"}, "linear_num_value_heads"),
        ({**GDN, "full_attention_interval": 0}, "full_attention_interval"),
        ({"quantization_config": {**GROUPS, "config_groups": [1]}}, "quantization_config.config_groups"),
        ({"quantization_config": {**GROUPS, "config_groups": {"a": {"targets": "Linear", "weights": 4}}}},
         "quantization_config.config_groups.a.weights"),
        ({"quantization_config": {**INT4_GROUP, "ignore": 3}}, "quantization_config.ignore"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_meant_is_refused_by_its_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fit({"mem_fraction_static": 0.8}, gpu("h100"), dense(**fields))
    (finding,) = caught.value.findings
    assert finding.id == "FIT010"
    assert finding.message.startswith(f"small/config.json: {named} is ")


def test_numbers_and_blocks_are_finite_and_above_zero() -> None:
    fields = Fields({"half": 0.5, "two": 2, "block": [128, 64]}, "x")
    assert (fields.number("half"), fields.number("two"), fields.number("none", default=3)) == (0.5, 2.0, 3.0)
    assert (fields.block("block"), fields.block("none")) == ((128, 64), None)
    with pytest.raises(Missing):
        fields.number("none")


def test_a_size_of_zero_is_refused_and_a_count_of_zero_is_not() -> None:
    fields = Fields({"a": 0}, "x")
    assert fields.count("a") == 0
    with pytest.raises(ConfigError, match="a is 0, a whole number above 0"):
        fields.size("a")


def test_a_nested_field_is_named_with_its_path() -> None:
    text = text_part(Fields({"text_config": {"hidden_size": 64}}, "x"))
    assert text.size("hidden_size") == 64
    with pytest.raises(Missing) as caught:
        text.size("num_hidden_layers", "n_layer")
    assert caught.value.names == ("text_config.num_hidden_layers",)


@pytest.mark.parametrize("value", [[1], "text", 3])
def test_a_part_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="text_config is "):
        text_part(Fields({"text_config": value}, "x"))


def test_lists_are_read_as_what_they_are() -> None:
    fields = Fields({"a": [1, 2], "b": ["x"], "c": [1, "x"], "d": "abc"}, "x")
    assert (fields.numbers("a"), fields.words("b"), fields.numbers("none"), fields.words("none")) == (
        (1, 2),
        ("x",),
        (),
        (),
    )
    for name, read in (("c", fields.numbers), ("d", fields.numbers), ("c", fields.words), ("d", fields.words)):
        with pytest.raises(ConfigError):
            read(name)


def test_a_complete_file_leaves_fields_to_its_class_and_an_excerpt_does_not() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "intermediate_size": 10240}
    vision = {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27}
    vision |= {"intermediate_size": 4304, "image_size": 896, "patch_size": 14}
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text, "vision_config": vision}
    config["model_type"] = "gemma3"
    complete = sized("h100", ModelFacts({**config, "transformers_version": "4.50.0"}))
    assert complete.unknown == ()
    assert complete.weights.total == pytest.approx(4.3e9 * 2, rel=0.02)  # Gemma 3 4B
    assert sized("h100", ModelFacts(config)).unknown[0] == "text_config.num_attention_heads"


@pytest.mark.parametrize(
    "config",
    [
        {"n_embd": 1024, "n_layer": 4, "n_head": 8, "n_inner": 4096, "architectures": ["GPTBigCodeForCausalLM"]},
        {"hidden_size": 1024, "num_layers": 4, "num_attention_heads": 8, "ffn_hidden_size": 4096, "seq_length": 2048,
         "padded_vocab_size": 32000, "multi_query_attention": True, "multi_query_group_num": 2,
         "architectures": ["ChatGLMModel"]},
    ],
    ids=["bigcode", "chatglm"],
)  # fmt: skip
def test_families_with_names_of_their_own_are_read(config: dict[str, Any]) -> None:
    fitted = sized("h100", ModelFacts({"vocab_size": 32000, **config}))
    assert fitted.unknown == ()
    assert fitted.weights.total is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "M-M*"},
        {"architectures": ["CLIPModel"]},
        {"architectures": ["MiniMaxText01ForCausalLM"], "attn_type_list": [0, 1]},
        {"architectures": ["Gemma3nForConditionalGeneration"], "altup_num_inputs": 4},
        {"architectures": ["Grok1ForCausalLM"], "num_local_experts": 8, "moe_intermediate_size": 2048},
    ],
)
def test_layers_that_are_not_modelled_are_unknown_and_not_guessed(fields: dict[str, Any]) -> None:
    fitted = sized("h100", dense(**fields))
    assert fitted.fits is None
    assert fitted.weights.total is None


def test_overrides_of_the_config_count() -> None:
    half = sized("l4", dense(), {"json_model_override_args": '{"num_hidden_layers": 2}'})
    whole = sized("l4", dense())
    assert half.kv is not None
    assert whole.kv is not None
    assert half.kv.bytes_per_token * 2 == whole.kv.bytes_per_token


def test_sizing_imports_no_engine_no_table_library_and_no_hydra() -> None:
    code = (
        "import sys; from sglang_hydra.fit.sizing import fit; from sglang_hydra.fit.remedy import remedies; "
        "from sglang_hydra.fit.checkpoint import read_checkpoint; "
        "print([name for name in ('torch', 'transformers', 'pandas', 'numpy', 'hydra', 'omegaconf', 'yaml', 'rich') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


STATES = {
    "bamba": ({"mamba_d_state": 128, "mamba_n_heads": 128}, "attn_layer_indices"),
    "jamba": ({"mamba_dt_rank": 256, "mamba_d_state": 16}, "attn_layer_period"),
    "nemotron-h": ({"ssm_state_size": 128}, "hybrid_override_pattern"),
    "lfm2": ({"conv_L_cache": 3}, "full_attn_idxs"),
    "kimi": ({"linear_attn_config": {"num_heads": 32}}, "linear_attn_config.full_attn_layers"),
}


@pytest.mark.parametrize("family", STATES)
def test_layers_with_a_state_are_unknown_where_nothing_says_which_they_are(family: str) -> None:
    stated, missing = STATES[family]
    fitted = sized("h100", dense(**stated))
    assert missing in fitted.unknown
    assert fitted.fits is None


@pytest.mark.parametrize("field", ["layers_block_type", "layer_types"])
def test_layers_with_a_state_may_be_listed_by_name(field: str) -> None:
    text = Fields({field: ["mamba", "mamba", "attention"], "mamba_d_state": 128}, "x")
    assert _mixers(text, "BambaForCausalLM", 3, windows=False) == [LINEAR, LINEAR, FULL]
