"""What a model path may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_hydra.rules.checks import loading
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(loading.model_path_is_text, "7", model_path=7),
    refused(loading.model_path_is_text, "None", model_path=None),
    unchanged(loading.model_path_is_text, model_path="org/name"),
    unchanged(loading.model_path_is_text, model_path=Path("folder")),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
