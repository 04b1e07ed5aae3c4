"""The hierarchical cache."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import cache
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(cache.hicache_extends_radix_cache, "radix", enable_hierarchical_cache=True, disable_radix_cache=True),
    unchanged(cache.hicache_extends_radix_cache, enable_hierarchical_cache=True),
    unchanged(cache.hicache_extends_radix_cache, disable_radix_cache=True),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
