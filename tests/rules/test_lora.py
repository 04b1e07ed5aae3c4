"""Adapters in one form."""

from __future__ import annotations

import pytest

from sglang_hydra import LoRARef
from sglang_hydra.arguments.fields.choices import LORA_TARGET_MODULES
from sglang_hydra.rules import lora
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(TABLE["LOR002"], {"enable_lora": True}, lora_paths=["a=/l/a"]),
    unchanged(TABLE["LOR002"], lora_paths=["a=/l/a"], enable_lora=False),
    unchanged(TABLE["LOR002"], lora_paths=[]),
    changed(
        lora.name_every_adapter,
        {
            "lora_paths": [
                LoRARef("a", "/l/a", False),
                LoRARef("org/repo", "org/repo", False),
                LoRARef("x", "y=z", False),
            ]
        },
        enable_lora=True,
        lora_paths=["a=/l/a", "org/repo", "x=y=z"],
    ),
    changed(
        lora.name_every_adapter,
        {"lora_paths": [LoRARef("a", "/l/a", True), LoRARef("b", "/l/b", False)]},
        enable_lora=True,
        lora_paths=[
            {"lora_name": "a", "lora_path": "/l/a", "pinned": True},
            {"lora_name": "b", "lora_path": "/l/b", "more": 1},
        ],
    ),
    changed(
        lora.name_every_adapter,
        {"lora_paths": [LoRARef("a", "/l/a", False)]},
        enable_lora=True,
        lora_paths={"a": "/l/a"},
    ),
    changed(lora.name_every_adapter, {"lora_paths": []}, enable_lora=True),
    unchanged(lora.name_every_adapter, enable_lora=True, lora_paths=["a", 7]),
    unchanged(lora.name_every_adapter, enable_lora=True, lora_paths="a"),
    unchanged(lora.name_every_adapter, enable_lora=False, lora_paths=["a"]),
    changed(
        lora.expand_target_modules,
        {"lora_target_modules": {"q_proj", "v_proj"}},
        enable_lora=True,
        lora_target_modules=["q_proj", "v_proj", "q_proj"],
    ),
    changed(
        lora.expand_target_modules,
        {"lora_target_modules": set(LORA_TARGET_MODULES)},
        enable_lora=True,
        lora_target_modules=["all"],
    ),
    changed(
        lora.expand_target_modules, {"lora_target_modules": {"a", "l"}}, enable_lora=True, lora_target_modules="all"
    ),
    unchanged(lora.expand_target_modules, lora_target_modules=["all"]),
    unchanged(lora.expand_target_modules, enable_lora=True, lora_target_modules=[]),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
