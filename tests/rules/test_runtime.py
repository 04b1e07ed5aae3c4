"""Device and seed."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import SEED, Row, changed, unchanged

ROWS = (
    changed(TABLE["DEV001"], {"device": "cuda"}, gpu="h100"),
    changed(TABLE["DEV001"], {"device": "cuda"}, gpu="mi300x"),
    changed(TABLE["DEV001"], {"device": "hpu"}, gpu="gaudi3"),
    changed(TABLE["DEV001"], {"device": "cpu"}, gpu="cpu"),
    changed(TABLE["DEV001"], {"device": "cpu"}, gpu="h100", env={"SGLANG_USE_CPU_ENGINE": "1"}),
    changed(TABLE["DEV001"], {"device": "cuda"}, gpu="h100", env={"SGLANG_USE_CPU_ENGINE": "true"}),
    unchanged(TABLE["DEV001"], gpu="none"),
    unchanged(TABLE["DEV001"], gpu="h100", device="cpu"),
    changed(TABLE["DEF003"], {"random_seed": SEED}),
    unchanged(TABLE["DEF003"], random_seed=0),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
