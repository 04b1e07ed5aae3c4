"""Device and seed."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import runtime
from tests.rules.cases import SEED, Row, changed, unchanged

ROWS = (
    changed(runtime.find_device, {"device": "cuda"}, gpu="h100"),
    changed(runtime.find_device, {"device": "cuda"}, gpu="mi300x"),
    changed(runtime.find_device, {"device": "hpu"}, gpu="gaudi3"),
    changed(runtime.find_device, {"device": "cpu"}, gpu="cpu"),
    changed(runtime.find_device, {"device": "cpu"}, gpu="h100", env={"SGLANG_USE_CPU_ENGINE": "1"}),
    changed(runtime.find_device, {"device": "cuda"}, gpu="h100", env={"SGLANG_USE_CPU_ENGINE": "true"}),
    unchanged(runtime.find_device, gpu="none"),
    unchanged(runtime.find_device, gpu="h100", device="cpu"),
    changed(runtime.draw_random_seed, {"random_seed": SEED}),
    unchanged(runtime.draw_random_seed, random_seed=0),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
