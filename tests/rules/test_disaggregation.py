"""Prefill and decode servers."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import disaggregation
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(disaggregation.no_radix_cache_when_decoding, {"disable_radix_cache": True}, disaggregation_mode="decode"),
    unchanged(disaggregation.no_radix_cache_when_decoding, disaggregation_mode="prefill"),
    changed(
        disaggregation.assume_tp_of_decode_servers,
        {"disaggregation_decode_tp": 4},
        tp_size=4,
        disaggregation_mode="prefill",
    ),
    unchanged(
        disaggregation.assume_tp_of_decode_servers,
        tp_size=4,
        disaggregation_mode="prefill",
        disaggregation_decode_tp=2,
    ),
    unchanged(disaggregation.assume_tp_of_decode_servers, disaggregation_mode="decode"),
    changed(
        disaggregation.assume_dp_of_decode_servers,
        {"disaggregation_decode_dp": 2},
        dp_size=2,
        disaggregation_mode="prefill",
    ),
    unchanged(disaggregation.assume_dp_of_decode_servers, dp_size=2),
    changed(
        disaggregation.pipeline_of_prefill_servers,
        {"disaggregation_prefill_pp": 2},
        pp_size=2,
        disaggregation_mode="prefill",
        disaggregation_prefill_pp=4,
    ),
    unchanged(disaggregation.pipeline_of_prefill_servers, pp_size=2),
    changed(disaggregation.no_graphs_when_prefilling, {"disable_cuda_graph": True}, disaggregation_mode="prefill"),
    unchanged(disaggregation.no_graphs_when_prefilling, disaggregation_mode="decode"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
