"""Chunks and pages."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import scheduling
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(
        scheduling.chunks_are_whole_pages,
        "chunked_prefill_size=1000",
        "page_size=64",
        chunked_prefill_size=1000,
        page_size=64,
    ),
    refused(
        scheduling.chunks_are_whole_pages,
        "(24 // dp_size=2)",
        chunked_prefill_size=24,
        dp_size=2,
        enable_dp_attention=True,
        page_size=16,
        stands={"chunked_prefill_size": 12},
    ),
    refused(scheduling.chunks_are_whole_pages, "page_size=0", chunked_prefill_size=1, page_size=0),
    unchanged(scheduling.chunks_are_whole_pages, chunked_prefill_size=-1, page_size=64),
    unchanged(scheduling.chunks_are_whole_pages, chunked_prefill_size=0, page_size=0),
    unchanged(scheduling.chunks_are_whole_pages, chunked_prefill_size=8192, page_size=64),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
