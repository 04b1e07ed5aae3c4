"""The lists of allowed values that other code may extend.

A plug-in that adds an attention backend to SGLang adds it here, too, before anything is composed or parsed:

    from sglang_hydra.arguments.fields.choices import add_attention_backend_choices
    add_attention_backend_choices(["my_backend"])

Fields refer to these lists themselves, so an addition counts everywhere: in checks, on the command line, in help."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sglang_hydra.text.json_types import json_beside

_LISTS: dict[str, list[str]] = json_beside(__file__)
LOAD_FORMAT_CHOICES = _LISTS["LOAD_FORMAT_CHOICES"]
QUANTIZATION_CHOICES = _LISTS["QUANTIZATION_CHOICES"]
ATTENTION_BACKEND_CHOICES = _LISTS["ATTENTION_BACKEND_CHOICES"]
DISAGG_TRANSFER_BACKEND_CHOICES = _LISTS["DISAGG_TRANSFER_BACKEND_CHOICES"]
GRAMMAR_BACKEND_CHOICES = _LISTS["GRAMMAR_BACKEND_CHOICES"]
REASONING_PARSER_CHOICES = _LISTS["REASONING_PARSER_CHOICES"]
TOOL_CALL_PARSER_CHOICES = _LISTS["TOOL_CALL_PARSER_CHOICES"]
# The modules that "all" means, and the values that users may write: the modules and "all".
LORA_TARGET_MODULES = _LISTS["LORA_TARGET_MODULES"]
LORA_ALL_MODULES = "all"
LORA_TARGET_MODULE_CHOICES = [*LORA_TARGET_MODULES, LORA_ALL_MODULES]


Add = Callable[[Iterable[str]], None]


def _adder(known: list[str], of: str) -> Add:
    def add(choices: Iterable[str]) -> None:
        _extend(known, choices)

    add.__doc__ = f"Allows more values of {of}."
    return add


add_load_format_choices = _adder(LOAD_FORMAT_CHOICES, "load_format")
add_quantization_method_choices = _adder(QUANTIZATION_CHOICES, "quantization")
add_attention_backend_choices = _adder(ATTENTION_BACKEND_CHOICES, "attention_backend, also for prefill and decode")
add_disagg_transfer_backend_choices = _adder(DISAGG_TRANSFER_BACKEND_CHOICES, "disaggregation_transfer_backend")
add_grammar_backend_choices = _adder(GRAMMAR_BACKEND_CHOICES, "grammar_backend")
add_reasoning_parser_choices = _adder(REASONING_PARSER_CHOICES, "reasoning_parser")
add_tool_call_parser_choices = _adder(TOOL_CALL_PARSER_CHOICES, "tool_call_parser")


def add_lora_target_module_choices(choices: Iterable[str]) -> None:
    """Allows more items of ``lora_target_modules``; ``all`` then includes them."""
    _extend(LORA_TARGET_MODULES, choices)
    LORA_TARGET_MODULE_CHOICES[:] = [*LORA_TARGET_MODULES, LORA_ALL_MODULES]


def _extend(known: list[str], choices: Iterable[str]) -> None:
    if isinstance(choices, str):
        raise TypeError(f"expected a list of names, got the one string {choices!r}: its letters would be the choices")
    known.extend(choice for choice in dict.fromkeys(choices) if choice not in known)
