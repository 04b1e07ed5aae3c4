"""Tokenizers."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(TABLE["TOK001"], "tokenizer_worker_num=0", tokenizer_worker_num=0),
    unchanged(TABLE["TOK001"], tokenizer_worker_num=4),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
