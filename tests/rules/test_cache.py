"""The hierarchical cache."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(
        TABLE["HIC001"],
        {"hicache_io_backend": "kernel", "hicache_mem_layout": "page_first"},
        hicache_storage_backend="mooncake",
        hicache_io_backend="direct",
    ),
    unchanged(TABLE["HIC001"], hicache_storage_backend="file"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
