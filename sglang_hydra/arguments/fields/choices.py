"""The lists of allowed values that other code may extend.

A plug-in that brings an attention backend to SGLang says so here too, before anything is composed or parsed:

    from sglang_hydra.arguments.fields.choices import add_attention_backend_choices
    add_attention_backend_choices(["my_backend"])

Fields refer to these very lists, so an addition counts everywhere at once: in checks, on the command line, in help.
"""

from __future__ import annotations

from collections.abc import Iterable

LOAD_FORMAT_CHOICES = [
    "auto",
    "pt",
    "safetensors",
    "npcache",
    "dummy",
    "sharded_state",
    "gguf",
    "bitsandbytes",
    "layered",
    "remote",
]

QUANTIZATION_CHOICES = [
    "awq",
    "fp8",
    "gptq",
    "marlin",
    "gptq_marlin",
    "awq_marlin",
    "bitsandbytes",
    "gguf",
    "modelopt",
    "modelopt_fp4",
    "petit_nvfp4",
    "w8a8_int8",
    "w8a8_fp8",
    "moe_wna16",
    "qoq",
    "w4afp8",
    "mxfp4",
]

ATTENTION_BACKEND_CHOICES = [
    "triton",
    "torch_native",
    "cutlass_mla",
    "fa3",
    "flashinfer",
    "flashmla",
    "trtllm_mla",
    "trtllm_mha",
    "dual_chunk_flash_attn",
    "hybrid_linear_attn",
    "aiter",
    "wave",
    "intel_amx",
    "ascend",
]

DISAGG_TRANSFER_BACKEND_CHOICES = ["mooncake", "nixl", "ascend", "fake"]

GRAMMAR_BACKEND_CHOICES = ["xgrammar", "outlines", "llguidance", "none"]

REASONING_PARSER_CHOICES = [
    "deepseek-r1",
    "deepseek-v3",
    "glm45",
    "gpt-oss",
    "kimi",
    "qwen3",
    "qwen3-thinking",
    "step3",
]

TOOL_CALL_PARSER_CHOICES = [
    "llama3",
    "qwen25",
    "mistral",
    "deepseekv3",
    "deepseekv31",
    "pythonic",
    "kimi_k2",
    "qwen3_coder",
    "glm45",
    "step3",
    "gpt-oss",
]

# What "all" stands for, and the same with "all" itself: the latter is what a user may write.
LORA_TARGET_MODULES = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "qkv_proj",
    "gate_up_proj",
]
LORA_ALL_MODULES = "all"
LORA_TARGET_MODULE_CHOICES = [*LORA_TARGET_MODULES, LORA_ALL_MODULES]


def add_load_format_choices(choices: Iterable[str]) -> None:
    """Allows more values of ``load_format``."""
    _extend(LOAD_FORMAT_CHOICES, choices)


def add_quantization_method_choices(choices: Iterable[str]) -> None:
    """Allows more values of ``quantization``."""
    _extend(QUANTIZATION_CHOICES, choices)


def add_attention_backend_choices(choices: Iterable[str]) -> None:
    """Allows more values of ``attention_backend`` and of its prefill and decode variants."""
    _extend(ATTENTION_BACKEND_CHOICES, choices)


def add_disagg_transfer_backend_choices(choices: Iterable[str]) -> None:
    """Allows more values of ``disaggregation_transfer_backend``."""
    _extend(DISAGG_TRANSFER_BACKEND_CHOICES, choices)


def add_grammar_backend_choices(choices: Iterable[str]) -> None:
    """Allows more values of ``grammar_backend``."""
    _extend(GRAMMAR_BACKEND_CHOICES, choices)


def add_reasoning_parser_choices(choices: Iterable[str]) -> None:
    """Allows more values of ``reasoning_parser``."""
    _extend(REASONING_PARSER_CHOICES, choices)


def add_tool_call_parser_choices(choices: Iterable[str]) -> None:
    """Allows more values of ``tool_call_parser``."""
    _extend(TOOL_CALL_PARSER_CHOICES, choices)


def add_lora_target_module_choices(choices: Iterable[str]) -> None:
    """Allows more items of ``lora_target_modules``; ``all`` stands for them too from then on."""
    _extend(LORA_TARGET_MODULES, choices)
    LORA_TARGET_MODULE_CHOICES[:] = [*LORA_TARGET_MODULES, LORA_ALL_MODULES]


def _extend(known: list[str], choices: Iterable[str]) -> None:
    if isinstance(choices, str):
        raise TypeError(f"expected a list of names, got the one string {choices!r}: its letters would be the choices")
    known.extend(choice for choice in dict.fromkeys(choices) if choice not in known)
