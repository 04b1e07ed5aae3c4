"""Which ranks each node starts, and on which of its GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_hydra.checks import nodes
from tests.rules.cases import GPUS, Row, refused, sealed_row, unchanged

ROWS = (
    unchanged(nodes.check_node_rank),
    unchanged(nodes.check_node_rank, nnodes=2, node_rank=1),
    refused(nodes.check_node_rank, "counted from 0 to 1", nnodes=2, node_rank=2),
    refused(nodes.check_node_rank, "counted from 0 to 1", nnodes=2, node_rank=-1),
    refused(nodes.check_node_rank, "node_rank=1 with one node", "nnodes=2", node_rank=1),
    unchanged(nodes.check_nodes_start_all_ranks, tp_size=16, nnodes=2),
    unchanged(nodes.check_nodes_start_all_ranks, tp_size=8, pp_size=2, nnodes=2),
    unchanged(nodes.check_nodes_start_all_ranks, tp_size=8, pp_size=2, nnodes=4),
    unchanged(nodes.check_nodes_start_all_ranks, tp_size=2, pp_size=4, nnodes=2),
    unchanged(nodes.check_nodes_start_all_ranks, pp_size=3, tp_size=2),
    unchanged(nodes.check_nodes_start_all_ranks, pp_size=0, nnodes=2),
    refused(nodes.check_nodes_start_all_ranks, "pp_size=3 stages", "pp_size=2", pp_size=3, tp_size=2, nnodes=2),
    refused(nodes.check_nodes_start_all_ranks, "nnodes=3 nodes", pp_size=2, tp_size=3, nnodes=3),
    refused(nodes.check_nodes_start_all_ranks, "tp_size=6 ranks", pp_size=4, tp_size=6, nnodes=6),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=4, gpu_id_step=2),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=2, dp_size=4),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=2, pp_size=2),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=2, pp_size=2, gpu_id_step=2, gpu="cpu"),
    unchanged(nodes.check_each_rank_has_a_gpu, tp_size=2, pp_size=2, gpu_id_step=2, device="cpu"),
    refused(nodes.check_each_rank_has_a_gpu, "two ranks on GPU 2", "gpu_id_step=1", tp_size=2, pp_size=2, gpu_id_step=2),
    refused(nodes.check_each_rank_has_a_gpu, "two ranks on GPUs 2, 3", tp_size=2, pp_size=2, dp_size=2),
    unchanged(nodes.check_head_address),
    unchanged(nodes.check_head_address, dist_init_addr="10.0.0.1:5000", nnodes=2),
    unchanged(nodes.check_head_address, dist_init_addr="[fd00::1]:5000", nnodes=2),
    refused(nodes.check_head_address, "is not HOST:PORT", "10.0.0.1:5000", dist_init_addr="10.0.0.1"),
    refused(nodes.check_head_address, "a port from 1 to 65535", dist_init_addr="10.0.0.1:0"),
    refused(nodes.check_head_address, "a port from 1 to 65535", dist_init_addr=":5000"),
    refused(nodes.check_head_address, "a port from 1 to 65535", dist_init_addr="host:70000"),
    refused(nodes.check_head_address, "no number", dist_init_addr="host:http"),
)
