"""MoE kernels."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import experts
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(
        experts.cutlass_runs_nvfp4, "modelopt_fp4, not fp8", moe_runner_backend="flashinfer_cutlass", quantization="fp8"
    ),
    unchanged(experts.cutlass_runs_nvfp4, moe_runner_backend="flashinfer_cutlass", quantization="modelopt_fp4"),
    unchanged(experts.cutlass_runs_nvfp4, quantization="fp8"),
    refused(
        experts.cutlass_splits_all_or_nothing,
        "tp_size=8; got 2",
        moe_runner_backend="flashinfer_cutlass",
        tp_size=8,
        ep_size=2,
    ),
    unchanged(experts.cutlass_splits_all_or_nothing, moe_runner_backend="flashinfer_cutlass", tp_size=8, ep_size=8),
    unchanged(experts.cutlass_splits_all_or_nothing, tp_size=8, ep_size=2),
    refused(experts.trtllm_runs_fp4_and_fp8, "not null", moe_runner_backend="flashinfer_trtllm"),
    unchanged(experts.trtllm_runs_fp4_and_fp8, moe_runner_backend="flashinfer_trtllm", quantization="fp8"),
    unchanged(experts.trtllm_runs_fp4_and_fp8, quantization="awq"),
    refused(experts.eplb_has_experts_to_move, "got 1", enable_eplb=True),
    unchanged(experts.eplb_has_experts_to_move, enable_eplb=True, ep_size=2),
    unchanged(experts.eplb_has_experts_to_move),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
