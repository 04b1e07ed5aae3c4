"""Storage formats: how many bytes a matrix takes, and which one a checkpoint or an argument asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sglang_hydra import ModelFacts
from sglang_hydra.architecture.formats import (
    FP8_TENSOR,
    NF4,
    NVFP4_LINEAR,
    Scheme,
    blocks,
    channels,
    grouped,
    mxfp4,
    plain,
    read_skips,
)
from sglang_hydra.architecture.known import Missing
from sglang_hydra.architecture.quantization import scheme_of
from sglang_hydra.architecture.tensors import ROUTED
from sglang_hydra.architecture.understanding import config_fields
from tests.fit.machines import GIB, dense, gpu, model, sized

ROWS, COLUMNS = 4096, 14336
WEIGHTS = ROWS * COLUMNS


@pytest.mark.parametrize(
    ("stored", "size"),
    [
        (plain(2), WEIGHTS * 2),
        (plain(4), WEIGHTS * 4),
        (FP8_TENSOR, WEIGHTS),
        (channels("int8"), WEIGHTS + ROWS * 4),
        (blocks("fp8", 128, 128), WEIGHTS + ROWS // 128 * COLUMNS // 128 * 4),
        (grouped("gptq", 4, 128), WEIGHTS / 2 + WEIGHTS / 128 * 2),
        (grouped("awq", 4, 128, zero_bits=4), WEIGHTS / 2 + WEIGHTS / 128 * 2.5),
        (grouped("row", 4, -1), WEIGHTS / 2 + ROWS * 2),
        (mxfp4(), WEIGHTS / 2 + WEIGHTS / 32),
        (NVFP4_LINEAR, WEIGHTS / 2 + 2 * WEIGHTS / 16),
        (NF4, WEIGHTS / 2 + WEIGHTS / 64 * 4),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_matrix_takes_its_weights_and_scales(stored: Any, size: float) -> None:
    assert stored.size(ROWS, COLUMNS) == size


def test_a_block_that_is_not_full_has_a_scale_all_the_same() -> None:
    assert blocks("fp8", 128, 128).scales(130, 100) == 2 * 1 * 4


WNA16 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}


@pytest.mark.parametrize(
    ("stored", "arguments", "linear", "experts"),
    [
        (None, {}, "16 bit", "16 bit"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {}, "fp8 blocks", "fp8 blocks"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, {}, "fp8", "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, {}, "awq int4", "awq int4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, {"quantization": "moe_wna16"}, "awq int4", "awq int4"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, {}, "gptq int8", "gptq int8"),
        ({"quant_method": "mxfp4"}, {"moe_runner_backend": "triton_kernel"}, "16 bit", "mxfp4"),
        ({"quant_method": "mxfp4"}, {"moe_runner_backend": "triton"}, "16 bit", "mxfp4 unpacked to 16 bit"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, {}, "nvfp4", "nvfp4"),
        ({"quant_algo": "FP8"}, {}, "fp8", "fp8"),
        ({"quantization": {"quant_algo": "NVFP4"}}, {"quantization": "modelopt_fp4"}, "nvfp4", "nvfp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": WNA16}}},
            {},
            "int4",
            "int4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
            },
            {},
            "fp8 channels",
            "fp8 channels",
        ),
        ({"quant_method": "fbgemm_fp8"}, {}, "fp8 channels", "fp8 channels"),
        ({"quant_method": "w4afp8"}, {}, "fp8 blocks", "int4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, {}, "nf4", "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, {}, "int8", "int8"),
        ({"quant_method": "blockwise_int8", "weight_block_size": [128, 128]}, {}, "int8 blocks", "int8 blocks"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, {}, "mxfp4", "mxfp4"),
        (None, {"quantization": "fp8"}, "fp8 channels", "fp8"),
        (None, {"quantization": "bitsandbytes"}, "nf4", "16 bit"),
        (None, {"torchao_config": "int4wo-128"}, "int4wo-128", "16 bit"),
        (None, {"torchao_config": "int8wo"}, "int8wo", "16 bit"),
    ],
)
def test_a_checkpoint_has_these_formats(
    stored: dict[str, Any] | None, arguments: dict[str, Any], linear: str, experts: str
) -> None:
    config = config_fields(ModelFacts({"architectures": ["X"], "quantization_config": stored}), "{}")
    assert config is not None
    scheme = scheme_of(config, arguments, gpu("h100"))
    assert (scheme.linear.name, scheme.experts.name) == (linear, experts)


@pytest.mark.parametrize(
    ("stored", "arguments", "missing"),
    [
        ({"quant_method": "aqlm"}, {}, "quantization_config.quant_method"),
        ({"quant_method": "awq", "bits": 4}, {}, "quantization_config.group_size"),
        ({"quant_method": "compressed-tensors"}, {}, "quantization_config.config_groups"),
        ({"quant_method": "quark"}, {}, "quantization_config.global_quant_config.weight.dtype"),
        (None, {"quantization": "awq"}, "quantization_config"),
        (None, {"quantization": "gguf"}, "quantization_config"),
    ],
)
def test_a_format_that_is_not_stated_is_unknown(
    stored: dict[str, Any] | None, arguments: dict[str, Any], missing: str
) -> None:
    config = config_fields(ModelFacts({"quantization_config": stored}), "{}")
    assert config is not None
    with pytest.raises(Missing) as caught:
        scheme_of(config, arguments, gpu("h100"))
    assert caught.value.names[0].startswith(missing)


def test_an_unknown_format_makes_the_weights_unknown_and_not_zero() -> None:
    fitted = sized("h100", dense(quantization_config={"quant_method": "awq", "bits": 4}))
    assert fitted.weights.total is None
    assert set(fitted.weights.parts.values()) == {None}
    assert fitted.fits is None
    assert fitted.unknown == ("quantization_config.group_size",)
    assert fitted.kv is not None
    assert fitted.kv.bytes_per_token > 0


def test_mxfp4_is_padded_as_the_gpu_needs_it() -> None:
    sizes = [
        sized(name, "openai/gpt-oss-120b", {"tp_size": 8}).weights.parts["routed experts"] for name in ("h100", "b200")
    ]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert sizes[1] / sizes[0] == pytest.approx(512 * 3072 / (384 * 2880), rel=0.01)


@pytest.mark.parametrize(
    ("on", "runner", "pad"),
    [
        ("b200", "flashinfer_mxfp4", (256, 256)),
        ("b200", "triton_kernel", (64, 1)),
        ("b200", "triton", (64, 1)),
        ("h100", "triton_kernel", (32, 1)),
    ],
)
def test_the_kernel_decides_how_far_experts_are_padded(on: str, runner: str, pad: tuple[int, int]) -> None:
    config = config_fields(ModelFacts({"quantization_config": {"quant_method": "mxfp4"}}), "{}")
    assert config is not None
    assert scheme_of(config, {"moe_runner_backend": runner}, gpu(on)).experts.pad == pad


FP8_CHANNELS = {"num_bits": 8, "type": "float", "strategy": "channel"}


NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
FP8_BLOCKS = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}


def compressed(*groups: tuple[list[str], Any], ignore: Sequence[str] = ("lm_head",)) -> Scheme:
    named = {f"group_{i}": {"targets": targets, "weights": weights} for i, (targets, weights) in enumerate(groups)}
    stored = {"quant_method": "compressed-tensors", "config_groups": named, "ignore": list(ignore)}
    config = config_fields(ModelFacts({"quantization_config": stored}), "{}")
    assert config is not None
    return scheme_of(config, {}, gpu("h100"))


def names(scheme: Scheme, kind: str, module: str, layers: int = 4) -> dict[str, int]:
    return {stored.name: number for stored, number in scheme.formats(kind, module, range(layers))}


@pytest.mark.parametrize(
    ("groups", "ignore", "kind", "module", "expected"),
    [
        ([(["Linear"], WNA16)], ["lm_head"], "linear", "self_attn.q_proj", {"int4": 4}),
        ([(["Linear"], WNA16)], ["re:.*self_attn.*"], "linear", "self_attn.q_proj", {"16 bit": 4}),
        ([(["Linear"], WNA16)], ["re:.*self_attn.*"], "experts", "mlp.experts.0.gate_proj", {"int4": 4}),
        ([(["Linear"], None)], [], "linear", "self_attn.q_proj", {"16 bit": 4}),
        # A name goes before the class, whichever comes first.
        ([(["Linear"], FP8_CHANNELS), (["re:.*mlp.*"], WNA16)], [], "linear", "mlp.down_proj", {"int4": 4}),
        ([(["Linear"], FP8_CHANNELS), (["re:.*mlp.*"], WNA16)], [], "linear", "self_attn.o_proj", {"fp8 channels": 4}),
        ([(["re:.*self_attn.*"], FP8_CHANNELS), (["re:.*experts.*"], NVFP4)], [], "experts", "mlp.experts.0.down_proj",
         {"nvfp4": 4}),
        ([(["re:.*self_attn.*"], FP8_CHANNELS), (["re:.*experts.*"], NVFP4)], [], "linear", "self_attn.q_proj",
         {"fp8 channels": 4}),
        # What no group names is not quantized.
        ([(["re:.*self_attn.*"], FP8_CHANNELS), (["re:.*experts.*"], NVFP4)], [], "linear", "mlp.gate_proj",
         {"16 bit": 4}),
        ([(["re:model\\.layers\\.[0-1]\\..*"], WNA16), (["Linear"], FP8_BLOCKS)], [], "linear", "mlp.gate_proj",
         {"int4": 2, "fp8 blocks": 2}),
        ([(["model.layers.3.mlp.down_proj"], WNA16), (["Linear"], FP8_BLOCKS)], [], "linear", "mlp.down_proj",
         {"int4": 1, "fp8 blocks": 3}),
        ([(["model.layers.3.mlp.down_proj"], WNA16), (["Linear"], FP8_BLOCKS)], ["model.layers.3"], "linear",
         "mlp.down_proj", {"16 bit": 1, "fp8 blocks": 3}),
        ([(["Linear"], WNA16)], [], "plain", "mlp.gate", {"16 bit": 4}),
    ],
)  # fmt: skip
def test_groups_of_targets_are_matched_to_layers(
    groups: list[Any], ignore: list[str], kind: str, module: str, expected: dict[str, int]
) -> None:
    assert names(compressed(*groups, ignore=ignore), kind, module) == expected


def test_compressed_tensors_without_groups_is_unknown() -> None:
    with pytest.raises(Missing, match=r"quantization_config\.config_groups"):
        compressed()


def test_kimi_k2_thinking_is_int4_in_its_experts_alone() -> None:
    """Its published files are 594 GB: INT4 experts, attention, shared experts and the first layer in 16 bits."""
    group = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
              "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]  # fmt: skip
    stored = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": group}},
        "ignore": ignore,
    }
    facts = ModelFacts({**(model("kimi_k2").config or {}), "quantization_config": stored})
    fitted = sized("h200", facts, {"tp_size": 8})
    parts = {name: size or 0.0 for name, size in fitted.weights.parts.items()}
    experts = 60 * 384 * 3 * 7168 * 2048 / 8
    assert parts[ROUTED] == pytest.approx(experts * (4 + 16 / 32) / 8, rel=1e-3)
    assert sum(parts.values()) * 8 == pytest.approx(594e9, rel=0.06)  # attention is partly on every GPU


def test_nvfp4_keeps_the_attention_that_its_list_leaves_alone_in_16_bits() -> None:
    fp4 = sized("b200", "nvidia/DeepSeek-R1-0528-FP4", {"tp_size": 4, "quantization": "modelopt_fp4"})
    # sgl-project/sglang#9162 logs 94.50 GB for such a checkpoint on four GPUs.
    assert fp4.weights.total == pytest.approx(94.50 * GIB, rel=0.005)


def test_weights_that_are_quantized_on_the_gpu_arrive_whole() -> None:
    online = sized("h100", "qwen3_32b", {"quantization": "fp8"})
    plain_weights = sized("h100", "qwen3_32b").weights.total
    assert online.weights.total is not None
    assert plain_weights is not None
    assert online.weights.total < 0.6 * plain_weights
    assert online.weights.loading == pytest.approx(plain_weights, rel=0.01)
    assert sized("l40s", "qwen3_32b", {"quantization": "fp8"}).fits is False


@pytest.mark.parametrize(
    ("patterns", "module", "skipped"),
    [
        (["lm_head"], "self_attn.q_proj", 0),
        (["self_attn"], "self_attn.o_proj", 4),
        (["mlp.gate"], "mlp.gate_proj", 0),
        (["model.layers.*.self_attn*"], "self_attn.kv_b_proj", 4),
        (["*self_attn*"], "self_attn.q_proj", 4),
        (["re:.*self_attn.*"], "self_attn.q_proj", 4),
        (["re:.*mlp\\.(gate|up)_proj.*"], "mlp.gate_proj", 4),
        (["re:.*mlp\\.(gate|up)_proj.*"], "mlp.shared_experts.gate_proj", 0),
        (["re:model\\.layers\\.1\\..*"], "mlp.gate_proj", 1),
        (["model.layers.0", "model.layers.3"], "mlp.down_proj", 2),
        (["model.layers.0.self_attn.o_proj"], "self_attn.o_proj", 1),
        (["model.layers.0.self_attn.o_proj"], "self_attn.q_proj", 0),
        (["model.layers.61*"], "self_attn.q_proj", 0),
        (["re:(broken"], "self_attn.q_proj", 0),
    ],
)
def test_a_list_leaves_these_modules_alone(patterns: list[str], module: str, skipped: int) -> None:
    assert len(read_skips([patterns]).skipped(module, range(4))) == skipped


def test_a_gguf_file_needs_its_size() -> None:
    facts = ModelFacts(model("qwen3_8b").config, gguf=True)
    fitted = sized("h100", facts)
    assert fitted.weights.total is None
    assert any("GGUF" in name for name in fitted.unknown)
