"""Adapters."""

from __future__ import annotations

import pytest

from sglang_hydra import LoRARef
from sglang_hydra.rules.checks import lora
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged, warned

ROWS = (
    refused(TABLE["LOR001"], "max_loras_per_batch=0", max_loras_per_batch=0),
    unchanged(TABLE["LOR001"], max_loras_per_batch=1),
    warned(TABLE["LOR003"], "ignored", enable_lora=False, lora_paths=["a"]),
    unchanged(TABLE["LOR003"], enable_lora=False),
    unchanged(TABLE["LOR003"], enable_lora=True, lora_paths=["a"]),
    refused(lora.adapters_are_readable, "lora_paths[1]", "7", enable_lora=True, lora_paths=["a", 7]),
    refused(lora.adapters_are_readable, "lora_name and lora_path", enable_lora=True, lora_paths=[{"lora_name": "a"}]),
    refused(lora.adapters_are_readable, "LoRARef", enable_lora=True, lora_paths=[LoRARef("a", "/l/a", False)]),
    refused(lora.adapters_are_readable, "'a=/l/a'", enable_lora=True, lora_paths="a=/l/a"),
    refused(lora.adapters_are_readable, "('a',)", enable_lora=True, lora_paths=("a",)),
    unchanged(lora.adapters_are_readable, enable_lora=True, lora_paths=["a", {"lora_name": "b", "lora_path": "c"}]),
    unchanged(lora.adapters_are_readable, enable_lora=True, lora_paths={"a": "b"}),
    unchanged(lora.adapters_are_readable, lora_paths=7),
    refused(lora.all_modules_stands_alone, "1 more", enable_lora=True, lora_target_modules=["all", "q_proj"]),
    unchanged(lora.all_modules_stands_alone, enable_lora=True, lora_target_modules=["all", "all"]),
    unchanged(lora.all_modules_stands_alone, lora_target_modules=["all", "q_proj"]),
    refused(TABLE["LOR008"], "max_lora_rank is null", enable_lora=True, lora_target_modules=["q_proj"]),
    refused(TABLE["LOR008"], "max_lora_rank is 0", enable_lora=True, max_lora_rank=0),
    unchanged(TABLE["LOR008"], enable_lora=True, lora_target_modules=["q_proj"], max_lora_rank=8),
    unchanged(TABLE["LOR008"], enable_lora=True, lora_paths=["a"]),
    unchanged(TABLE["LOR008"]),
    refused(
        TABLE["LOR009"],
        "max_loaded_loras=4",
        "max_loras_per_batch=8",
        enable_lora=True,
        max_loaded_loras=4,
    ),
    unchanged(TABLE["LOR009"], enable_lora=True, max_loaded_loras=8),
    unchanged(TABLE["LOR009"], max_loaded_loras=4),
    refused(lora.adapters_can_be_loaded, "2 adapters", enable_lora=True, lora_paths=["a", "b"], max_loaded_loras=1),
    unchanged(lora.adapters_can_be_loaded, enable_lora=True, lora_paths=["a", "b"], max_loaded_loras=2),
    unchanged(lora.adapters_can_be_loaded, lora_paths=["a", "b"], max_loaded_loras=1),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
