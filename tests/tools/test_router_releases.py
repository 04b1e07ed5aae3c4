"""The table of routers: written as it is committed, and made of what each release told."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "sglang_hydra" / "planning" / "topology" / "router_releases.json"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("record_router", ROOT / "tools" / "record_router_releases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_table_is_what_the_tool_writes(tool: Any) -> None:
    text = TABLE.read_text(encoding="utf-8")
    assert tool.layout(json.loads(text)) == text


def test_a_flag_has_the_releases_and_choices_that_were_told(tool: Any) -> None:
    told = {
        "0.1.0": {"verbose": ["switch", None], "policy": ["str", ["a"]]},
        "0.2.0": {"policy": ["str", ["a"]]},
        "0.3.0": {"policy": ["str", ["a", "b"]], "queue": ["int", None]},
    }
    assert tool.ranges(told) == {
        "policy": {
            "kind": "str",
            "since": "0.1.0",
            "until": None,
            "choices": [["0.1.0", ["a"]], ["0.3.0", ["a", "b"]]],
        },
        "queue": {"kind": "int", "since": "0.3.0", "until": None, "choices": []},
        "verbose": {"kind": "switch", "since": "0.1.0", "until": "0.1.0", "choices": []},
    }


def test_to_an_sglang_belongs_the_newest_router_of_its_day(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    days = {"0.3.9": "2025-01-01", "0.4.0": "2025-01-02", "0.4.1": "2025-01-05", "0.4.2": "2025-01-06"}
    monkeypatch.setattr(tool, "uploads", lambda package: days)
    routers = {"0.1.0": "2025-01-01", "0.1.1": "2025-01-03", "0.1.2": "2025-01-04", "0.1.3": "2025-01-06"}
    assert tool.pairs(routers) == [["0.4.0", "0.1.0"], ["0.4.1", "0.1.2"], ["0.4.2", "0.1.3"]]
