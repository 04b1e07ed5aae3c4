"""Which ranks each node starts, and on which of its GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_hydra.arguments.layout import layout_of
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.rules.checks import nodes
from sglang_hydra.rules.rule import Refusal
from tests.rules.cases import Row, refused, unchanged

MIMO = "gpu=h200 model=mimo_v2_5 engine.version=0.5.23"
ON_FOUR = "engine.version=0.5.23 gpu=h200 model=qwen3_8b tp_size=4"

ROWS = (
    unchanged(nodes.check_node_rank),
    unchanged(nodes.check_node_rank, nnodes=2, node_rank=1),
    refused(nodes.check_node_rank, "counted from 0 to 1", nnodes=2, node_rank=2),
    refused(nodes.check_node_rank, "counted from 0 to 1", nnodes=2, node_rank=-1),
    refused(nodes.check_node_rank, "node_rank=1 with one node", node_rank=1),
    unchanged(nodes.check_nodes_start_all_ranks, tp_size=16, nnodes=2),
    unchanged(nodes.check_nodes_start_all_ranks, tp_size=8, pp_size=2, nnodes=2),
    unchanged(nodes.check_nodes_start_all_ranks, tp_size=8, pp_size=2, nnodes=4),
    unchanged(nodes.check_nodes_start_all_ranks, tp_size=2, pp_size=4, nnodes=2),
    unchanged(nodes.check_nodes_start_all_ranks, pp_size=3, tp_size=2),
    unchanged(nodes.check_nodes_start_all_ranks, pp_size=0, nnodes=2),
    refused(nodes.check_nodes_start_all_ranks, "pp_size=3 stages", pp_size=3, tp_size=2, nnodes=2),
    refused(nodes.check_nodes_start_all_ranks, "nnodes=3 nodes", pp_size=2, tp_size=3, nnodes=3),
    refused(nodes.check_nodes_start_all_ranks, "tp_size=6 ranks", pp_size=4, tp_size=6, nnodes=6),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=4, gpu_id_step=2),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=2, dp_size=4),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=2, pp_size=2),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=2, pp_size=2, gpu_id_step=2, gpu="cpu"),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=2, pp_size=2, gpu_id_step=2, device="cpu"),
    refused(nodes.check_each_rank_has_a_gpu, "two ranks on GPU 2", tp_size=2, pp_size=2, gpu_id_step=2),
    refused(nodes.check_each_rank_has_a_gpu, "two ranks on GPUs 2, 3", tp_size=2, pp_size=2, dp_size=2),
    unchanged(nodes.check_head_address),
    unchanged(nodes.check_head_address, dist_init_addr="10.0.0.1:5000", nnodes=2),
    unchanged(nodes.check_head_address, dist_init_addr="[fd00::1]:5000", nnodes=2),
    refused(nodes.check_head_address, "is not HOST:PORT", dist_init_addr="10.0.0.1"),
    refused(nodes.check_head_address, "a port from 1 to 65535", dist_init_addr="10.0.0.1:0"),
    refused(nodes.check_head_address, "a port from 1 to 65535", dist_init_addr=":5000"),
    refused(nodes.check_head_address, "a port from 1 to 65535", dist_init_addr="host:70000"),
    refused(nodes.check_head_address, "no number", dist_init_addr="host:http"),
    unchanged(nodes.check_decode_contexts_divide, overrides=ON_FOUR),
    refused(nodes.check_fused_projection, "for 4 ranks of attention, and 8", overrides=f"{MIMO} tp_size=8"),
    unchanged(nodes.check_fused_projection, overrides=f"{MIMO} tp_size=4"),
    unchanged(nodes.check_fused_projection, overrides=f"{MIMO} tp_size=8 enable_dp_attention=true dp_size=2"),
    unchanged(nodes.check_fused_projection, overrides="gpu=h200 model=mimo_v2_flash tp_size=8 engine.version=0.5.23"),
    unchanged(nodes.check_decode_contexts_divide, overrides=f"{ON_FOUR} dcp_size=2"),
    refused(nodes.check_decode_contexts_divide, "does not divide tp_size=4", overrides=f"{ON_FOUR} dcp_size=3"),
)

SIZES = st.integers(1, 12)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()


def ranks_started_by(node: int, nnodes: int, tp_size: int, pp_size: int) -> list[tuple[int, int]]:
    """The (stage, rank) pairs that SGLang 0.5.2 starts on one node: entrypoints/engine.py, lines 753-765."""
    nodes_per_stage = max(nnodes // pp_size, 1)
    tp = tp_size // nodes_per_stage
    pp = max(pp_size // nnodes, 1)
    first_rank, first_stage = tp * (node % nodes_per_stage), pp * (node // nodes_per_stage)
    return [(first_stage + stage, first_rank + rank) for stage in range(pp) for rank in range(tp)]


@given(nnodes=SIZES, tp_size=SIZES, pp_size=SIZES)
def test_the_nodes_are_refused_exactly_when_they_do_not_start_each_rank_once(
    nnodes: int, tp_size: int, pp_size: int
) -> None:
    started = [pair for node in range(nnodes) for pair in ranks_started_by(node, nnodes, tp_size, pp_size)]
    wanted = [(stage, rank) for stage in range(pp_size) for rank in range(tp_size)]
    outcome = unchanged(nodes.check_nodes_start_all_ranks, nnodes=nnodes, tp_size=tp_size, pp_size=pp_size).outcome()
    assert isinstance(outcome, Refusal) is (sorted(started) != wanted)


@given(
    nnodes=SIZES,
    tp_size=SIZES,
    pp_size=SIZES,
    dp_size=st.integers(1, 4),
    gpu_id_step=st.integers(1, 4),
    base_gpu_id=st.integers(0, 4),
    enable_dp_attention=st.booleans(),
)
def test_a_node_takes_a_gpu_for_each_rank_from_the_base_on(**sizes: int) -> None:
    layout = layout_of(sizes, SPECIFIED_VERSION)
    ranks, stages, _ = layout.node_share
    numbers = layout.gpu_numbers()
    assert len(numbers) == ranks * stages * (1 if sizes["enable_dp_attention"] else sizes["dp_size"])
    assert not numbers or min(numbers) == sizes["base_gpu_id"]


def test_more_ranks_than_any_node_has_are_not_counted_one_by_one() -> None:
    sizes = {"nnodes": 1, "tp_size": 65536, "pp_size": 65536, "dp_size": 65536, "gpu_id_step": 1, "base_gpu_id": 0}
    assert layout_of(sizes, SPECIFIED_VERSION).gpu_numbers() == []
