"""Sizes of parallel groups."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import parallel
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(parallel.dp_ranks_divide_tp, "tp_size=8", "dp_size=3", tp_size=8, dp_size=3, enable_dp_attention=True),
    refused(parallel.dp_ranks_divide_tp, "dp_size=0", tp_size=8, dp_size=0, enable_dp_attention=True),
    unchanged(parallel.dp_ranks_divide_tp, tp_size=8, dp_size=4, enable_dp_attention=True),
    unchanged(parallel.dp_ranks_divide_tp, tp_size=8, dp_size=0),
    refused(TABLE["DPA005"], "needs enable_dp_attention=true", enable_dp_lm_head=True),
    refused(
        TABLE["DPA005"],
        "dp_size=1 has switched off",
        enable_dp_lm_head=True,
        enable_dp_attention=True,
        stands={"enable_dp_attention": False},
    ),
    unchanged(TABLE["DPA005"], enable_dp_lm_head=True, enable_dp_attention=True),
    unchanged(TABLE["DPA005"]),
    refused(parallel.nodes_divide_gpus, "8 GPUs", "nnodes=3", tp_size=8, nnodes=3),
    refused(parallel.nodes_divide_gpus, "nnodes=0", nnodes=0),
    unchanged(parallel.nodes_divide_gpus, tp_size=2, pp_size=2, nnodes=4),
    refused(TABLE["PIP002"], "the overlap scheduler", pp_size=2),
    refused(
        TABLE["PIP002"],
        "speculative_algorithm=EAGLE",
        pp_size=2,
        disable_overlap_schedule=True,
        speculative_algorithm="EAGLE",
    ),
    refused(
        TABLE["PIP002"],
        "enable_mixed_chunk",
        pp_size=2,
        disable_overlap_schedule=True,
        enable_mixed_chunk=True,
    ),
    unchanged(TABLE["PIP002"], pp_size=2, disable_overlap_schedule=True),
    unchanged(TABLE["PIP002"], enable_mixed_chunk=True),
    refused(TABLE["PAR002"], "dp_size=2", "nnodes=2", dp_size=2, nnodes=2),
    unchanged(TABLE["PAR002"], dp_size=2, nnodes=2, enable_dp_attention=True),
    unchanged(TABLE["PAR002"], dp_size=2),
    unchanged(TABLE["PAR002"], nnodes=2),
    refused(TABLE["PAR003"], "-1", base_gpu_id=-1),
    unchanged(TABLE["PAR003"], base_gpu_id=0),
    refused(TABLE["PAR004"], "gpu_id_step=0", gpu_id_step=0),
    unchanged(TABLE["PAR004"], gpu_id_step=2),
    refused(parallel.dense_layers_split_or_not, "moe_dense_tp_size=2", "1 or null", moe_dense_tp_size=2),
    unchanged(parallel.dense_layers_split_or_not, moe_dense_tp_size=1),
    unchanged(parallel.dense_layers_split_or_not, moe_dense_tp_size=True),
    unchanged(parallel.dense_layers_split_or_not),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
