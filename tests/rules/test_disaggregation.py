"""Prefill and decode servers."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(TABLE["DIS003"], {"disable_radix_cache": True}, disaggregation_mode="decode"),
    unchanged(TABLE["DIS003"], disaggregation_mode="prefill"),
    changed(
        TABLE["DIS005"],
        {"disaggregation_decode_tp": 4},
        tp_size=4,
        disaggregation_mode="prefill",
    ),
    unchanged(
        TABLE["DIS005"],
        tp_size=4,
        disaggregation_mode="prefill",
        disaggregation_decode_tp=2,
    ),
    unchanged(TABLE["DIS005"], disaggregation_mode="decode"),
    changed(
        TABLE["DIS006"],
        {"disaggregation_decode_dp": 2},
        dp_size=2,
        disaggregation_mode="prefill",
    ),
    unchanged(TABLE["DIS006"], dp_size=2),
    changed(
        TABLE["DIS007"],
        {"disaggregation_prefill_pp": 2},
        pp_size=2,
        disaggregation_mode="prefill",
        disaggregation_prefill_pp=4,
    ),
    unchanged(TABLE["DIS007"], pp_size=2),
    changed(TABLE["DIS009"], {"disable_cuda_graph": True}, disaggregation_mode="prefill"),
    unchanged(TABLE["DIS009"], disaggregation_mode="decode"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
