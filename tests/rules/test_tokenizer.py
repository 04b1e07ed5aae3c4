"""The tokenizer's default."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import tokenizer
from tests.rules.cases import MODEL_PATH, Row, changed, unchanged

ROWS = (
    changed(tokenizer.take_tokenizer_from_model, {"tokenizer_path": MODEL_PATH}),
    unchanged(tokenizer.take_tokenizer_from_model, tokenizer_path="org/tokenizer"),
    unchanged(tokenizer.take_tokenizer_from_model, tokenizer_path=""),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
