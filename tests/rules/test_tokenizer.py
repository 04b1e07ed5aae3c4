"""The tokenizer's default."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import MODEL_PATH, Row, changed, unchanged

ROWS = (
    changed(TABLE["DEF001"], {"tokenizer_path": MODEL_PATH}),
    unchanged(TABLE["DEF001"], tokenizer_path="org/tokenizer"),
    unchanged(TABLE["DEF001"], tokenizer_path=""),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
