"""Histogram buckets: the same table for both arguments."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import logs
from sglang_hydra.rules.rule import Rule
from tests.rules.cases import Row, refused, unchanged

CHECKS = {
    "prompt_tokens_buckets": logs.prompt_buckets_are_a_rule,
    "generation_tokens_buckets": logs.generation_buckets_are_a_rule,
}
GOOD: tuple[object, ...] = (
    None,
    [],
    ["default"],
    ["tse", "1000", "2", "8"],
    ["tse", " 5 ", "1.01", " 8 "],
    ["tse", "inf", "inf", "1"],
    ["tse", 10, 2, 8.9],
    ["customer", "0"],
    ["customer", "1e3", "0.5", "-0.0"],
)
BAD: tuple[tuple[object, str], ...] = (
    (["foo"], "'foo' is not one of"),
    (["TSE", "1", "2", "3"], "'TSE'"),
    (["", "1"], "''"),
    ("tse", "'t'"),
    (["default", "10"], "no values, got 1"),
    (["tse", "1000", "2"], "3 numbers, got 2"),
    (["tse", "a", "2", "8"], "'a'"),
    (["tse", "1000", "2", "8.5"], "'8.5'"),
    (["tse", "1000", "1", "8"], "base must be above 1, got 1.0"),
    (["tse", "1000", "2", "0"], "count must be above 0, got 0"),
    (["tse", "nan", "2", "8"], "middle must be above 0, got nan"),
    (["customer"], "needs values"),
    (["customer", "10", "abc"], "takes numbers"),
    (["customer", "10", "10.0"], "twice"),
    (["customer", "-1", "5"], "below 0"),
    (["customer", "nan"], "below 0"),
)
ROWS = tuple(
    row
    for field, check in CHECKS.items()
    for row in (
        *(unchanged(check, **{field: buckets}) for buckets in GOOD),
        *(refused(check, field, part, **{field: buckets}) for buckets, part in BAD),
    )
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()


@pytest.mark.parametrize("buckets", [["tse", None, "2", "8"], ["tse", "1", "2", float("inf")], 5, {"a": 1}])
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_values_that_upstream_fails_on_are_not_accepted(check: Rule, buckets: object) -> None:
    field = next(name for name, each in CHECKS.items() if each is check)
    with pytest.raises((TypeError, OverflowError, LookupError)):
        unchanged(check, **{field: buckets}).outcome()
