"""MoE kernels."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import experts
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(TABLE["MOE001"], "modelopt_fp4, not fp8", moe_runner_backend="flashinfer_cutlass", quantization="fp8"),
    unchanged(TABLE["MOE001"], moe_runner_backend="flashinfer_cutlass", quantization="modelopt_fp4"),
    unchanged(TABLE["MOE001"], quantization="fp8"),
    refused(
        TABLE["MOE002"],
        "tp_size=8; got 2",
        moe_runner_backend="flashinfer_cutlass",
        tp_size=8,
        ep_size=2,
    ),
    unchanged(TABLE["MOE002"], moe_runner_backend="flashinfer_cutlass", tp_size=8, ep_size=8),
    unchanged(TABLE["MOE002"], tp_size=8, ep_size=2),
    refused(TABLE["MOE003"], "not null", moe_runner_backend="flashinfer_trtllm"),
    unchanged(TABLE["MOE003"], moe_runner_backend="flashinfer_trtllm", quantization="fp8"),
    unchanged(TABLE["MOE003"], quantization="awq"),
    refused(experts.eplb_has_experts_to_move, "got 1", enable_eplb=True),
    unchanged(experts.eplb_has_experts_to_move, enable_eplb=True, ep_size=2),
    unchanged(experts.eplb_has_experts_to_move),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
