"""The hierarchical cache."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(TABLE["HIC002"], "radix", enable_hierarchical_cache=True, disable_radix_cache=True),
    unchanged(TABLE["HIC002"], enable_hierarchical_cache=True),
    unchanged(TABLE["HIC002"], disable_radix_cache=True),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
