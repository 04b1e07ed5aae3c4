"""Weights: the right number of parameters for every family, and each part on the right GPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_hydra import GpuFacts, ModelFacts
from sglang_hydra.architecture.quantization import scheme_of
from sglang_hydra.architecture.reading import architecture_of, read_decoder
from sglang_hydra.architecture.tensors import ATTENTION, DENSE, EMBEDDING, HEAD, PARTS, ROTARY, ROUTED, SHARED, VISION
from sglang_hydra.architecture.understanding import config_fields
from sglang_hydra.architecture.vision import has_tower, read_tower
from sglang_hydra.fit.weights import stored_weights
from tests.fit.machines import DATA, GIB, dense, gpu, model, sized

FAMILIES = [json.loads(line) for line in (DATA / "memory" / "parameters.jsonl").read_text("utf-8").splitlines()]
V3 = "deepseek-ai/DeepSeek-V3"
# Biases, norms of heads and the like are not counted: at most this share of the parameters.
UNCOUNTED = 0.0006


def parameters(config: dict[str, Any]) -> float:
    """The parameters of a model that is not quantized, two bytes each."""
    fields = config_fields(ModelFacts(config), "{}")
    assert fields is not None
    decoder = read_decoder(fields, architecture_of(fields))
    scheme = scheme_of(fields, {}, gpu("h100"))
    tower = None
    if has_tower(fields, decoder.architecture, {"enable_multimodal": True}):
        tower = read_tower(fields, decoder.architecture, decoder)
    return stored_weights(decoder, scheme, tower, 2) / 2


def parts(on: str, path: str, **arguments: Any) -> dict[str, float]:
    return {name: size or 0.0 for name, size in sized(on, path, arguments).weights.parts.items()}


@pytest.mark.parametrize("family", FAMILIES, ids=[family["id"] for family in FAMILIES])
def test_a_family_has_its_published_number_of_parameters(family: dict[str, Any]) -> None:
    counted = parameters(family["config"])
    if family["id"].startswith("gpt-oss"):  # its biases are kept in float32
        experts = family["config"]["num_local_experts"] * family["config"]["num_hidden_layers"]
        counted -= experts * 3 * family["config"]["intermediate_size"]
    assert counted == pytest.approx(family["parameters"], rel=UNCOUNTED)


def test_parts_add_up_to_the_total() -> None:
    weights = sized("h200", V3, {"tp_size": 8}).weights
    assert weights.total == pytest.approx(sum(size or 0.0 for size in weights.parts.values()))
    assert tuple(weights.parts) == PARTS


def test_tensor_parallelism_divides_experts_and_repeats_what_compresses() -> None:
    eight, sixteen = parts("h200", V3, tp_size=8), parts("h200", V3, tp_size=16)
    assert sixteen[ROUTED] == pytest.approx(eight[ROUTED] / 2, rel=1e-3)
    assert sixteen[EMBEDDING] == eight[EMBEDDING] / 2
    assert eight[ATTENTION] / 2 < sixteen[ATTENTION] < eight[ATTENTION]


def test_expert_parallelism_leaves_the_bytes_of_experts_alone() -> None:
    assert parts("h200", V3, tp_size=8, ep_size=8)[ROUTED] == pytest.approx(parts("h200", V3, tp_size=8)[ROUTED], 1e-3)


def test_dp_attention_repeats_attention_and_embedding_and_divides_the_rest() -> None:
    plain = parts("h200", V3, tp_size=8)
    shared = parts("h200", V3, tp_size=8, dp_size=8, enable_dp_attention=True)
    assert shared[EMBEDDING] == 8 * plain[EMBEDDING]
    assert shared[ATTENTION] > 4 * plain[ATTENTION]
    assert (shared[ROUTED], shared[HEAD], shared[DENSE]) == (plain[ROUTED], plain[HEAD], plain[DENSE])


@pytest.mark.parametrize(
    ("argument", "part", "times"),
    [
        ({"enable_dp_lm_head": True}, HEAD, 8),
        ({"moe_dense_tp_size": 1}, DENSE, 8),
        ({"moe_a2a_backend": "deepep"}, SHARED, 8),
    ],
)
def test_what_is_repeated_on_request(argument: dict[str, Any], part: str, times: int) -> None:
    dp = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}
    without, repeated = parts("h200", V3, **dp), parts("h200", V3, **dp, **argument)
    assert repeated[part] == pytest.approx(times * without[part], rel=1e-3)


def test_redundant_experts_take_room_like_any_other() -> None:
    on = {"tp_size": 8, "moe_a2a_backend": "deepep"}
    without, more = parts("h200", V3, **on), parts("h200", V3, **on, ep_num_redundant_experts=32)
    assert more[ROUTED] == pytest.approx(without[ROUTED] * 288 / 256, rel=1e-3)


def test_a_class_without_redundant_experts_makes_no_room_for_them() -> None:
    on = {"tp_size": 8}
    assert parts("h200", "mixtral_8x7b", **on, ep_num_redundant_experts=8) == parts("h200", "mixtral_8x7b", **on)


def test_glm_repeats_its_shared_experts_under_expert_parallelism() -> None:
    sliced, whole = (parts("h200", "glm_4_5", tp_size=8, ep_size=size) for size in (1, 8))
    assert whole[SHARED] == pytest.approx(8 * sliced[SHARED], rel=1e-3)
    assert whole[ROUTED] == pytest.approx(sliced[ROUTED], rel=1e-3)


def test_what_is_asked_for_in_between_changes_no_answer() -> None:
    before = parts("h200", V3, tp_size=8)
    assert parts("h200", V3, tp_size=16) != before
    assert parts("h200", V3, tp_size=8) == before


def test_pipeline_stages_share_the_layers_and_the_fullest_counts() -> None:
    fitted = sized("h100", "llama_3_1_70b", {"tp_size": 1, "pp_size": 3})
    assert len(fitted.weights.stages) == 3
    assert fitted.weights.total == max(fitted.weights.stages)
    whole = sized("b200", "llama_3_1_70b").weights.total
    assert whole is not None
    heads = 2 * 128256 * 8192 * 2  # Llama's class makes one on each stage
    assert sum(fitted.weights.stages) - heads == pytest.approx(whole, rel=0.01)


@pytest.mark.parametrize(
    ("architecture", "first"),
    [("LlamaForCausalLM", 1), ("Qwen3MoeForCausalLM", 1), ("Qwen2ForCausalLM", 0), ("Qwen3ForCausalLM", 0)],
)
def test_most_classes_make_an_lm_head_on_every_stage(architecture: str, first: int) -> None:
    stages = sized("l4", dense(architectures=[architecture]), {"pp_size": 2}).weights.stages
    table, norm = 32000 * 1024 * 2, 1024 * 2
    assert stages[0] - stages[1] == first * table - norm


@pytest.mark.parametrize(("layers", "noted"), [(81, True), (80, False)])
def test_a_last_stage_with_more_layers_is_noted(layers: int, noted: bool) -> None:
    notes = sized("h100", dense(num_hidden_layers=layers), {"pp_size": 4}).notes
    assert ("81 layers do not divide by pp_size=4: the last stage holds 21, the others 20" in " ".join(notes)) is noted


def test_the_last_stage_of_a_tied_model_has_its_own_head() -> None:
    tied = dense(tie_word_embeddings=True)
    one, two = (sized("l4", tied, {"pp_size": stages}).weights.stages for stages in (1, 2))
    assert sum(two) - sum(one) > 0.9 * 32000 * 1024 * 2


def test_kv_heads_are_repeated_where_there_are_more_gpus() -> None:
    two, four = (parts_of(dense(), tp_size=tp)[ATTENTION] for tp in (2, 4))
    head = 1024 // 8 * 1024 * 2 * 4  # bytes of one head in all layers
    assert (two, four) == ((4 + 2 + 4) * head, (2 + 2 + 2) * head)


def parts_of(facts: ModelFacts, **arguments: Any) -> dict[str, float]:
    return {name: size or 0.0 for name, size in sized("l4", facts, arguments).weights.parts.items()}


def test_gemma_3_holds_its_embedding_on_every_gpu() -> None:
    one, two = parts("h100", "gemma_3_27b"), parts("h100", "gemma_3_27b", tp_size=2)
    assert one[EMBEDDING] == two[EMBEDDING] == 262208 * 5376 * 2
    assert one[HEAD] == 0


def test_latent_attention_also_holds_its_kv_projection_unpacked() -> None:
    heads, layers = 128, 61
    unpacked = heads * (128 + 128) * 512 * 2 * layers / 8
    shapes = 2112 * 7168 + heads * 192 * 1536 // 8 + heads * 256 * 512 // 8 + 7168 * heads * 128 // 8
    assert parts("h200", V3, tp_size=8)[ATTENTION] == pytest.approx(unpacked + layers * shapes, rel=2e-3)


def test_long_contexts_have_a_long_table_of_angles() -> None:
    scout = parts("h200", "llama_4_scout", tp_size=8, attention_backend="fa3")
    assert scout[ROTARY] == 10485760 * 128 * 4


@pytest.mark.parametrize(
    ("fields", "dimensions", "rows"),
    [
        ({}, 128, 4096),
        ({"partial_rotary_factor": 0.5}, 64, 4096),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}, 32, 4096),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 128, 16384),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, 128, 16384),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, 128, 4096),
        ({"architectures": ["NemotronHForCausalLM"]}, 0, 0),  # the order is in the layers that keep a state
        ({"architectures": ["GraniteMoeHybridForCausalLM"], "position_embedding_type": "nope"}, 0, 0),
        ({"architectures": ["GraniteMoeHybridForCausalLM"], "position_embedding_type": "rope"}, 128, 4096),
    ],
)
def test_the_table_of_rotary_angles_is_as_the_config_says(fields: dict[str, Any], dimensions: int, rows: int) -> None:
    found = sized("h100", dense(**fields)).weights.parts
    assert found[ROTARY] == dimensions * rows * 4


@pytest.mark.parametrize(
    ("architecture", "outside", "inside", "tied"),
    [
        ("Qwen3VLForConditionalGeneration", False, True, False),
        ("Qwen3VLForConditionalGeneration", True, False, True),
        ("Qwen3VLForConditionalGeneration", None, True, True),
        ("Gemma4ForConditionalGeneration", True, False, False),
    ],
)
def test_lm_head_is_the_embedding_where_the_part_that_the_class_asks_says_so(
    architecture: str, outside: bool | None, inside: bool, tied: bool
) -> None:
    config = {
        **(dense().config or {}),
        "architectures": [architecture],
        "tie_word_embeddings": outside,
        "text_config": {"tie_word_embeddings": inside},
    }
    fields = config_fields(ModelFacts(config), "{}")
    assert fields is not None
    assert read_decoder(fields, architecture).tied is tied


def test_grok_makes_a_table_of_rotary_angles_in_each_layer() -> None:
    """64 MiB in each of Grok-2's 64 layers: what a log of 0.5.2rc2 showed beyond the weights (github file index id
    45518106035)."""
    rope = {"rope_type": "original", "original_max_position_embeddings": 8192, "scaling_factor": 16.0}
    config = {name: value for name, value in (model("grok_2").config or {}).items() if name not in rope}
    found = [
        sized("h100", ModelFacts({**config, **more}), {"tp_size": 8, "quantization": "fp8"}).weights.parts[ROTARY]
        for more in ({}, rope)
    ]
    assert found == [64 * 2**20, 65 * 64 * 2**20]


def test_llama_4_has_its_tower_only_on_request() -> None:
    arguments = {"tp_size": 8, "attention_backend": "fa3"}
    assert parts("h200", "llama_4_scout", **arguments)[VISION] == 0
    assert parts("h200", "llama_4_scout", **arguments, enable_multimodal=True)[VISION] > 0


def test_lora_adapters_are_held_before_the_cache() -> None:
    arguments = {"enable_lora": True, "max_lora_rank": 16, "lora_target_modules": ["q_proj"], "max_loras_per_batch": 4}
    fitted = sized("l4", dense(), arguments)
    rows, columns = (8 + 2 * 2) * 128, 1024
    assert fitted.lora == (rows + 3 * columns) * 16 * 4 * 2 * 4


def test_a_lora_rank_that_nobody_states_is_unknown() -> None:
    fitted = sized("l4", dense(), {"enable_lora": True})
    assert fitted.lora is None
    assert fitted.fits is None
    assert "max_lora_rank" in fitted.unknown


def test_weights_kept_in_host_memory_are_not_on_the_gpu() -> None:
    here, offloaded = (sized("h100", "qwen3_32b", {"cpu_offload_gb": gib}).weights.total for gib in (0, 20))
    assert here is not None
    assert offloaded == pytest.approx(here - 20 * GIB)


def test_old_gpus_and_float32_checkpoints_are_loaded_in_16_bits() -> None:
    sizes = {
        sized("t4", dense(torch_dtype=dtype), {"dtype": asked}).weights.total
        for dtype, asked in (("bfloat16", "auto"), ("float32", "auto"), ("bfloat16", "float32"))
    }
    assert len(sizes) == 1
    double = sized("l4", dense(), {"dtype": "float32"}).weights.total
    assert double == pytest.approx(2 * sizes.pop(), rel=0.02)


def test_a_class_that_this_version_lacks_is_read_by_its_fields() -> None:
    fitted = sized("h100", ModelFacts({**model("qwen3_8b").config, "architectures": ["Qwen9ForCausalLM"]}))  # type: ignore[dict-item]
    known = sized("h100", "qwen3_8b")
    assert fitted.weights.total == known.weights.total
    assert fitted.weights.error > known.weights.error
    assert any("no class Qwen9ForCausalLM" in note for note in fitted.notes)


def test_a_gpu_without_memory_of_its_own_leaves_the_verdict_open() -> None:
    values = {"mem_fraction_static": 0.88}
    from sglang_hydra.fit.sizing import fit

    fitted = fit(values, GpuFacts("cpu", "none", "cpu"), dense())
    assert fitted.fits is None
    assert "gpu.memory_mib" in fitted.unknown
    assert fitted.weights.total is not None
