"""Experts."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(
        TABLE["MOE004"],
        {"disable_shared_experts_fusion": True},
        moe_runner_backend="flashinfer_trtllm",
    ),
    unchanged(TABLE["MOE004"], moe_runner_backend="flashinfer_cutlass"),
    changed(
        TABLE["MOE005"],
        {"disable_cuda_graph": True},
        moe_a2a_backend="deepep",
        deepep_mode="normal",
    ),
    unchanged(TABLE["MOE005"], moe_a2a_backend="deepep"),
    unchanged(TABLE["MOE005"], deepep_mode="normal"),
    changed(TABLE["MOE006"], {"ep_size": 8}, tp_size=8, ep_size=2, moe_a2a_backend="deepep"),
    unchanged(TABLE["MOE006"], tp_size=8, ep_size=2),
    changed(TABLE["EPL001"], {"expert_distribution_recorder_mode": "stat"}, enable_eplb=True),
    unchanged(TABLE["EPL001"], enable_eplb=True, expert_distribution_recorder_mode="per_pass"),
    unchanged(TABLE["EPL001"]),
    changed(TABLE["EPL002"], {"ep_dispatch_algorithm": "static"}),
    changed(TABLE["EPL002"], {"ep_dispatch_algorithm": "static"}, init_expert_location=None, enable_eplb=True),
    unchanged(TABLE["EPL002"], init_expert_location=None),
    unchanged(TABLE["EPL002"], ep_dispatch_algorithm="dynamic"),
    changed(
        TABLE["EPL004"],
        {"expert_distribution_recorder_mode": "stat"},
        enable_expert_distribution_metrics=True,
    ),
    unchanged(TABLE["EPL004"]),
    changed(TABLE["EPL005"], {"expert_distribution_recorder_buffer_size": 1000}),
    changed(
        TABLE["EPL005"],
        {"expert_distribution_recorder_buffer_size": 50},
        eplb_rebalance_num_iterations=50,
        expert_distribution_recorder_mode="stat",
    ),
    changed(
        TABLE["EPL005"],
        {"expert_distribution_recorder_buffer_size": 1000},
        eplb_rebalance_num_iterations=None,
        expert_distribution_recorder_mode="stat",
    ),
    unchanged(TABLE["EPL005"], eplb_rebalance_num_iterations=None),
    unchanged(TABLE["EPL005"], expert_distribution_recorder_buffer_size=-1),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
