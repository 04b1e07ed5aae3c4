"""Prefill chunks."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import scheduling
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(scheduling.choose_chunked_prefill_size, {"chunked_prefill_size": 2048}, gpu="rtx_5090"),
    changed(scheduling.choose_chunked_prefill_size, {"chunked_prefill_size": 8192}, gpu="h200"),
    changed(scheduling.choose_chunked_prefill_size, {"chunked_prefill_size": 16384}, gpu="mi300x"),
    changed(scheduling.choose_chunked_prefill_size, {"chunked_prefill_size": 4096}, gpu="cpu", device="cpu"),
    changed(scheduling.choose_chunked_prefill_size, {"chunked_prefill_size": 8192}, gpu="gaudi3", device="hpu"),
    changed(scheduling.choose_chunked_prefill_size, {"chunked_prefill_size": 4096}, gpu="gaudi3", device="cpu"),
    unchanged(scheduling.choose_chunked_prefill_size, chunked_prefill_size=-1),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
