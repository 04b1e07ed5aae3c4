"""CUDA graphs."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import graphs
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(graphs.limit_graphs_on_small_gpus, {"cuda_graph_max_bs": 8}, gpu="t4", tp_size=3),
    changed(graphs.limit_graphs_on_small_gpus, {"cuda_graph_max_bs": 80}, gpu="rtx_4090", tp_size=4),
    unchanged(graphs.limit_graphs_on_small_gpus, gpu="h100"),
    unchanged(graphs.limit_graphs_on_small_gpus, gpu="cpu", device="cpu"),
    unchanged(graphs.limit_graphs_on_small_gpus, gpu="t4", cuda_graph_max_bs=160),
    changed(TABLE["GRA002"], {"disable_cuda_graph": True}, attention_backend="torch_native"),
    unchanged(TABLE["GRA002"], decode_attention_backend="torch_native"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
