"""The six flags of old."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    unchanged(TABLE["DEP001"], tp_size=8, ep_size=2),
    changed(TABLE["DEP001"], {"ep_size": 8}, tp_size=8, ep_size=2, enable_ep_moe=True),
    unchanged(TABLE["DEP002"], moe_a2a_backend="none"),
    changed(TABLE["DEP002"], {"moe_a2a_backend": "deepep"}, enable_deepep_moe=True),
    unchanged(TABLE["DEP003"], moe_runner_backend="triton"),
    changed(TABLE["DEP003"], {"moe_runner_backend": "triton_kernel"}, enable_triton_kernel_moe=True),
    changed(
        TABLE["DEP003"],
        {"moe_runner_backend": "flashinfer_cutlass"},
        enable_flashinfer_cutlass_moe=True,
        moe_runner_backend="triton",
    ),
    changed(
        TABLE["DEP003"],
        {"moe_runner_backend": "flashinfer_trtllm"},
        enable_flashinfer_trtllm_moe=True,
    ),
    changed(
        TABLE["DEP003"],
        {"moe_runner_backend": "flashinfer_mxfp4"},
        enable_flashinfer_mxfp4_moe=True,
        enable_triton_kernel_moe=True,
        enable_flashinfer_trtllm_moe=True,
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
