"""What clients see."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import MODEL_PATH, Row, changed, unchanged

ROWS = (
    changed(TABLE["DEF002"], {"served_model_name": MODEL_PATH}),
    unchanged(TABLE["DEF002"], served_model_name="mine"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
