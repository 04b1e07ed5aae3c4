"""Prefill and decode servers."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import disaggregation
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(
        TABLE["DIS001"],
        "disaggregation_decode_tp=0",
        disaggregation_mode="decode",
        disaggregation_decode_tp=0,
    ),
    unchanged(TABLE["DIS001"], disaggregation_mode="decode"),
    unchanged(TABLE["DIS001"], disaggregation_mode="prefill", disaggregation_decode_tp=4),
    refused(
        TABLE["DIS002"],
        "disaggregation_decode_dp=2",
        disaggregation_mode="decode",
        disaggregation_decode_dp=2,
    ),
    unchanged(TABLE["DIS002"], disaggregation_mode="decode"),
    refused(disaggregation.decode_replicas_are_served_in_turn, "dp_size=2", dp_size=2, disaggregation_mode="decode"),
    unchanged(
        disaggregation.decode_replicas_are_served_in_turn,
        dp_size=2,
        disaggregation_mode="decode",
        prefill_round_robin_balance=True,
    ),
    unchanged(
        disaggregation.decode_replicas_are_served_in_turn,
        dp_size=2,
        disaggregation_mode="decode",
        env={"SGLANG_IS_IN_CI": "True"},
    ),
    refused(
        disaggregation.decode_replicas_are_served_in_turn,
        dp_size=2,
        disaggregation_mode="decode",
        env={"SGLANG_IS_IN_CI": "yes"},
    ),
    unchanged(disaggregation.decode_replicas_are_served_in_turn, dp_size=1, disaggregation_mode="decode"),
    refused(
        disaggregation.one_tp_divides_the_other,
        "tp_size=4",
        "disaggregation_decode_tp=6",
        tp_size=4,
        disaggregation_mode="prefill",
        disaggregation_decode_tp=6,
    ),
    refused(
        disaggregation.one_tp_divides_the_other,
        "disaggregation_decode_tp=0",
        disaggregation_mode="prefill",
        disaggregation_decode_tp=0,
    ),
    unchanged(
        disaggregation.one_tp_divides_the_other,
        tp_size=4,
        disaggregation_mode="prefill",
        disaggregation_decode_tp=2,
    ),
    unchanged(disaggregation.one_tp_divides_the_other, tp_size=4, disaggregation_decode_tp=6),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
