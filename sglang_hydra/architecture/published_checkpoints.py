"""Published checkpoints of a model in other formats: what of their config differs from the original's.

Only checkpoints of exactly the same weights are listed: another format is a remedy, another model is not. The
format is what each repository's config.json (or hf_quant_config.json) states; ``source`` says where that was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from sglang_hydra.facts.model import ModelFacts


class Published(NamedTuple):
    """A checkpoint: its id, the one it was made from, its quantization_config (None: not quantized)."""

    path: str
    original: str
    format: str
    quantization: Mapping[str, Any] | None
    source: str


_FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}
_NVFP4_EXPERTS = {**_NVFP4, "ignore": ["lm_head", "*self_attn*"]}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}


def _channels(kind: str, *ignore: str) -> Mapping[str, Any]:
    """compressed-tensors with one scale for each output."""
    weights = {"num_bits": 8, "type": kind, "strategy": "channel", "symmetric": True}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
        "ignore": ["lm_head", *ignore],
    }


_QWEN = "Qwen's model cards of the -FP8, -AWQ and -GPTQ-Int4 repositories; sgl-project/sglang docs"
_GLM = "sgl-cookbook@7b5bd9c GLM45ConfigGenerator"
_RECIPE = "published SGLang configurations (sgl-project/sglang docs/basic_usage/deepseek.md@0a9fc02, InferenceX)"

CHECKPOINTS: tuple[Published, ...] = (
    Published("Qwen/Qwen3-0.6B-FP8", "Qwen/Qwen3-0.6B", "fp8", _FP8_BLOCKS, _QWEN),
    Published("Qwen/Qwen3-8B-FP8", "Qwen/Qwen3-8B", "fp8", _FP8_BLOCKS, _QWEN),
    Published("Qwen/Qwen3-8B-AWQ", "Qwen/Qwen3-8B", "awq", _AWQ, _QWEN),
    Published("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B", "fp8", _FP8_BLOCKS, _QWEN),
    Published("Qwen/Qwen3-32B-AWQ", "Qwen/Qwen3-32B", "awq", _AWQ, _QWEN),
    Published("Qwen/Qwen3-30B-A3B-FP8", "Qwen/Qwen3-30B-A3B", "fp8", _FP8_BLOCKS, _QWEN),
    Published("Qwen/Qwen3-30B-A3B-GPTQ-Int4", "Qwen/Qwen3-30B-A3B", "gptq", _GPTQ, _QWEN),
    Published("Qwen/Qwen3-235B-A22B-FP8", "Qwen/Qwen3-235B-A22B", "fp8", _FP8_BLOCKS, _QWEN),
    Published("Qwen/Qwen3-235B-A22B-GPTQ-Int4", "Qwen/Qwen3-235B-A22B", "gptq", _GPTQ, _QWEN),
    Published("Qwen/Qwen2.5-VL-7B-Instruct-AWQ", "Qwen/Qwen2.5-VL-7B-Instruct", "awq", _AWQ, _QWEN),
    Published("Qwen/Qwen2.5-VL-72B-Instruct-AWQ", "Qwen/Qwen2.5-VL-72B-Instruct", "awq", _AWQ, _QWEN),
    Published("zai-org/GLM-4.5-FP8", "zai-org/GLM-4.5", "fp8", _channels("float"), _GLM),
    Published("zai-org/GLM-4.5-Air-FP8", "zai-org/GLM-4.5-Air", "fp8", _channels("float"), _GLM),
    Published(
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
        "fp8",
        _channels("float", "re:.*self_attn.*", "re:.*router.*", "re:.*vision_model.*", "re:.*multi_modal_projector.*"),
        "sgl-project/sglang docs/basic_usage/llama4.md@1432729",
    ),
    Published(
        "meta-llama/Llama-3.1-405B-Instruct-FP8",
        "meta-llama/Llama-3.1-405B-Instruct",
        "fp8",
        {
            "quant_method": "fbgemm_fp8",
            "modules_to_not_convert": ["lm_head", "self_attn", "model.layers.0", "model.layers.125"],
        },
        "sgl-project/sglang docs/basic_usage/llama3.md; the checkpoint keeps attention and the outer layers in BF16",
    ),
    Published(
        "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4",
        "meta-llama/Llama-3.1-70B-Instruct",
        "awq",
        _AWQ,
        "the repository's config.json",
    ),
    Published(
        "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4",
        "meta-llama/Llama-3.1-8B-Instruct",
        "awq",
        _AWQ,
        "the repository's config.json",
    ),
    Published("nvidia/DeepSeek-R1-0528-FP4", "deepseek-ai/DeepSeek-R1-0528", "nvfp4", _NVFP4_EXPERTS, _RECIPE),
    Published("nvidia/DeepSeek-R1-0528-FP4-v2", "deepseek-ai/DeepSeek-R1-0528", "nvfp4", _NVFP4_EXPERTS, _RECIPE),
    Published(
        "cognitivecomputations/DeepSeek-R1-AWQ",
        "deepseek-ai/DeepSeek-R1",
        "awq",
        {**_AWQ, "group_size": 64},
        _RECIPE,
    ),
    Published(
        "meituan/DeepSeek-R1-Block-INT8",
        "deepseek-ai/DeepSeek-R1",
        "int8",
        {"quant_method": "blockwise_int8", "weight_block_size": [128, 128]},
        _RECIPE,
    ),
    Published(
        "meituan/DeepSeek-R1-Channel-INT8", "deepseek-ai/DeepSeek-R1", "int8", {"quant_method": "w8a8_int8"}, _RECIPE
    ),
    Published("lmsys/gpt-oss-120b-bf16", "openai/gpt-oss-120b", "bf16", None, "sgl-project/sglang#8833"),
    Published("lmsys/gpt-oss-20b-bf16", "openai/gpt-oss-20b", "bf16", None, "sgl-project/sglang#8833"),
)

_SAME_SHAPES = {
    "deepseek-ai/DeepSeek-R1": "deepseek-ai/DeepSeek-R1-0528",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek-ai/DeepSeek-R1",
}
"""Checkpoints with other weights of the same shapes: their facts size each other, but neither replaces the other."""


def find_published(path: str) -> Published | None:
    """The listed checkpoint with this id."""
    return next((checkpoint for checkpoint in CHECKPOINTS if checkpoint.path == path), None)


def originals(checkpoint: Published) -> tuple[str, ...]:
    """The ids whose config has the shapes of ``checkpoint``."""
    same = _SAME_SHAPES.get(checkpoint.original)
    return (checkpoint.original,) if same is None else (checkpoint.original, same)


def others(path: str) -> Iterator[Published]:
    """Smaller checkpoints of the same weights as ``path``."""
    for checkpoint in CHECKPOINTS:
        if checkpoint.original == path and checkpoint.format != "bf16":
            yield checkpoint


def facts_as(checkpoint: Published, original: ModelFacts) -> ModelFacts:
    """The facts of ``checkpoint``, from those of its original."""
    if original.config is None:
        return original
    config = {name: value for name, value in original.config.items() if name != "quantization_config"}
    if checkpoint.quantization is not None:
        config["quantization_config"] = dict(checkpoint.quantization)
    source = f"{original.source}; its format ({checkpoint.format}) from {checkpoint.source}"
    return replace(original, config=config, source=source, revision=None)
