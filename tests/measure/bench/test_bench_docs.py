"""docs/bench.md tells of the settings and workloads that there are, all of them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from sglang_hydra.compose.settings.bench import BenchNode, SloNode

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
SETTINGS = {item.name for item in fields(BenchNode)}


def test_every_setting_is_told() -> None:
    told = set(re.findall(r"`bench\.(\w+)", PAGE))
    assert told == SETTINGS
    assert set(re.findall(r"`(?:bench\.slo)?\.(\w+)[` ]", PAGE)) >= {item.name for item in fields(SloNode)}


def test_every_workload_is_told() -> None:
    shapes = {file.stem for file in (ROOT / "conf" / "bench" / "workload").glob("*.yaml")}
    row = next(line for line in PAGE.splitlines() if line.startswith("| `bench/workload"))
    assert set(re.findall(r"`(\w+)`", row)) == shapes
