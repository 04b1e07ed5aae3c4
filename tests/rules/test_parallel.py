"""DP attention and pipelines."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import parallel
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(TABLE["DPA001"], {"enable_dp_attention": False}, enable_dp_attention=True),
    unchanged(TABLE["DPA001"], dp_size=2, enable_dp_attention=True),
    changed(
        parallel.schedule_boldly_with_dp_attention,
        {"schedule_conservativeness": 0.7 * 0.3},
        enable_dp_attention=True,
        schedule_conservativeness=0.7,
    ),
    unchanged(parallel.schedule_boldly_with_dp_attention, dp_size=2),
    changed(
        parallel.share_chunks_among_dp_ranks,
        {"chunked_prefill_size": 1024},
        dp_size=8,
        enable_dp_attention=True,
        stands={"chunked_prefill_size": 8192},
    ),
    changed(
        parallel.share_chunks_among_dp_ranks,
        {"chunked_prefill_size": 0},
        dp_size=8,
        enable_dp_attention=True,
        chunked_prefill_size=4,
    ),
    changed(
        parallel.share_chunks_among_dp_ranks,
        {"chunked_prefill_size": -1},
        dp_size=8,
        enable_dp_attention=True,
        chunked_prefill_size=-1,
    ),
    unchanged(parallel.share_chunks_among_dp_ranks, dp_size=8, chunked_prefill_size=8192),
    unchanged(parallel.share_chunks_among_dp_ranks, dp_size=0, enable_dp_attention=True, chunked_prefill_size=8192),
    changed(TABLE["PIP001"], {"disable_overlap_schedule": True}, pp_size=2),
    unchanged(TABLE["PIP001"], pp_size=1),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
