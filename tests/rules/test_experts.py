"""Experts."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import experts
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(
        experts.no_shared_fusion_with_trtllm,
        {"disable_shared_experts_fusion": True},
        moe_runner_backend="flashinfer_trtllm",
    ),
    unchanged(experts.no_shared_fusion_with_trtllm, moe_runner_backend="flashinfer_cutlass"),
    changed(
        experts.no_graphs_with_normal_deepep,
        {"disable_cuda_graph": True},
        moe_a2a_backend="deepep",
        deepep_mode="normal",
    ),
    unchanged(experts.no_graphs_with_normal_deepep, moe_a2a_backend="deepep"),
    unchanged(experts.no_graphs_with_normal_deepep, deepep_mode="normal"),
    changed(experts.spread_experts_with_deepep, {"ep_size": 8}, tp_size=8, ep_size=2, moe_a2a_backend="deepep"),
    unchanged(experts.spread_experts_with_deepep, tp_size=8, ep_size=2),
    changed(experts.record_experts_for_eplb, {"expert_distribution_recorder_mode": "stat"}, enable_eplb=True),
    unchanged(experts.record_experts_for_eplb, enable_eplb=True, expert_distribution_recorder_mode="per_pass"),
    unchanged(experts.record_experts_for_eplb),
    changed(experts.choose_ep_dispatch, {"ep_dispatch_algorithm": "static"}),
    changed(
        experts.choose_ep_dispatch, {"ep_dispatch_algorithm": "static"}, init_expert_location=None, enable_eplb=True
    ),
    unchanged(experts.choose_ep_dispatch, init_expert_location=None),
    unchanged(experts.choose_ep_dispatch, ep_dispatch_algorithm="dynamic"),
    changed(
        experts.record_experts_for_metrics,
        {"expert_distribution_recorder_mode": "stat"},
        enable_expert_distribution_metrics=True,
    ),
    unchanged(experts.record_experts_for_metrics),
    changed(experts.size_expert_record, {"expert_distribution_recorder_buffer_size": 1000}),
    changed(
        experts.size_expert_record,
        {"expert_distribution_recorder_buffer_size": 50},
        eplb_rebalance_num_iterations=50,
        expert_distribution_recorder_mode="stat",
    ),
    changed(
        experts.size_expert_record,
        {"expert_distribution_recorder_buffer_size": 1000},
        eplb_rebalance_num_iterations=None,
        expert_distribution_recorder_mode="stat",
    ),
    unchanged(experts.size_expert_record, eplb_rebalance_num_iterations=None),
    unchanged(experts.size_expert_record, expert_distribution_recorder_buffer_size=-1),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
