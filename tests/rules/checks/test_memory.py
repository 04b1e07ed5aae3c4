"""Vision tower and Mamba state."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import memory
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(memory.vision_tower_has_a_size, "None layers", model="blurred_vision"),
    unchanged(memory.vision_tower_has_a_size, model="blurred_vision", mem_fraction_static=0.8),
    unchanged(memory.vision_tower_has_a_size, model="qwen2_5_vl_7b"),
    refused(memory.mamba_dtype_is_text, "None", mamba_ssm_dtype=None),
    refused(memory.mamba_dtype_is_text, "bfloat16", mamba_ssm_dtype="bfloat16\0"),
    unchanged(memory.mamba_dtype_is_text, mamba_ssm_dtype="anything"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
