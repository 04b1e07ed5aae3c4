"""Choice lists that other code extends: an addition counts everywhere at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from sglang_hydra.arguments.fields import choices
from sglang_hydra.arguments.fields.check import check_value
from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.text.errors import ConfigError

CLI = json.loads((Path(__file__).parents[2] / "data" / "conformance" / "cli.json").read_text())
LISTS = [name for name in vars(choices) if name.isupper() and isinstance(getattr(choices, name), list)]
ADDERS: list[tuple[Callable[[Iterable[str]], None], str, str]] = [
    (choices.add_load_format_choices, "load_format", "--load-format"),
    (choices.add_quantization_method_choices, "quantization", "--quantization"),
    (choices.add_attention_backend_choices, "attention_backend", "--attention-backend"),
    (choices.add_attention_backend_choices, "decode_attention_backend", "--decode-attention-backend"),
    (choices.add_attention_backend_choices, "prefill_attention_backend", "--prefill-attention-backend"),
    (
        choices.add_disagg_transfer_backend_choices,
        "disaggregation_transfer_backend",
        "--disaggregation-transfer-backend",
    ),
    (choices.add_grammar_backend_choices, "grammar_backend", "--grammar-backend"),
    (choices.add_reasoning_parser_choices, "reasoning_parser", "--reasoning-parser"),
    (choices.add_tool_call_parser_choices, "tool_call_parser", "--tool-call-parser"),
    (choices.add_lora_target_module_choices, "lora_target_modules", "--lora-target-modules"),
]


@pytest.fixture(autouse=True)
def _lists_as_before() -> Iterator[None]:
    before = {name: list(getattr(choices, name)) for name in LISTS}
    yield
    for name, items in before.items():
        getattr(choices, name)[:] = items


@pytest.mark.parametrize(("add", "name", "flag"), ADDERS)
def test_an_added_choice_counts_in_checks_and_on_the_command_line(
    add: Callable[[Iterable[str]], None], name: str, flag: str
) -> None:
    value = ["brand_new"] if name == "lora_target_modules" else "brand_new"
    line = ["--model", "x", flag, "brand_new"]
    assert check_value(name, value)
    with pytest.raises(ConfigError):
        parse_argv(line)
    add(["brand_new"])
    assert check_value(name, value) is None
    assert parse_argv(line)[name] == value


def test_adding_twice_adds_once() -> None:
    choices.add_grammar_backend_choices(["mine", "mine"])
    choices.add_grammar_backend_choices(["mine", "xgrammar"])
    assert choices.GRAMMAR_BACKEND_CHOICES == ["xgrammar", "outlines", "llguidance", "none", "mine"]


def test_all_stands_for_added_lora_modules_too_and_stays_last() -> None:
    choices.add_lora_target_module_choices(["lm_head"])
    assert choices.LORA_TARGET_MODULES[-1] == "lm_head"
    assert [*choices.LORA_TARGET_MODULES, "all"] == choices.LORA_TARGET_MODULE_CHOICES


def test_one_string_is_no_list_of_choices() -> None:
    with pytest.raises(TypeError, match="expected a list of names"):
        choices.add_grammar_backend_choices("mine")


def test_the_lists_start_as_sglang_has_them() -> None:
    for name, items in CLI["constants"].items():
        assert getattr(choices, name) == items
    assert CLI["reasoning_parser_choices"] == choices.REASONING_PARSER_CHOICES
    assert CLI["tool_call_parser_choices"] == choices.TOOL_CALL_PARSER_CHOICES
    assert CLI["lora_supported_target_modules"] == choices.LORA_TARGET_MODULES
    assert CLI["lora_target_all_modules"] == choices.LORA_ALL_MODULES
