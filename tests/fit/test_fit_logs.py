"""The comparison with real servers' logs: it holds on the public ones, and it notices what is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fit.machines import DATA, REPOSITORY

PUBLIC = DATA / "memory" / "public.jsonl"


@pytest.fixture(scope="module")
def tool() -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location("fit_logs", REPOSITORY / "tools" / "fit_logs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(identity: str) -> dict[str, Any]:
    rows = [json.loads(line) for line in PUBLIC.read_text(encoding="utf-8").splitlines()]
    return next(entry for entry in rows if entry["id"] == identity)


def written(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in rows), encoding="utf-8")
    return str(path)


def test_the_public_logs_are_predicted_within_the_bounds(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main([str(PUBLIC)]) == 0
    printed = capsys.readouterr().out
    assert "WRONG" not in printed
    assert printed.rstrip().endswith("within the bounds")


def test_every_row_is_compared_and_unscored_ones_are_said_to_be(tool: Any) -> None:
    rows = tool.read_rows(PUBLIC)
    comparisons = [item for entry in rows for item in tool.compare(entry)]
    for entry in rows:
        scored = {item.quantity for item in comparisons if item.row == entry["id"] and item.scored}
        assert scored == set(entry["scored"])


@pytest.mark.parametrize(
    ("change", "quantity"),
    [
        ({"weights_gb_per_gpu": 8.0}, "weights"),
        ({"derived_bytes_per_token": 41500.0}, "bytes_per_token"),
        ({"kv_tokens": 300500}, "kv_tokens"),
        ({"outcome": "oom_kv"}, "verdict"),
    ],
)
def test_a_log_that_says_otherwise_is_out_of_bounds(
    tool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], quantity: str
) -> None:
    changed = {**row("ghfile-55529353766-qwen3-14b-4x4090"), **change}
    assert tool.main([written(tmp_path / "logs.jsonl", changed)]) == 1
    wrong = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "WRONG" in line]
    assert wrong == [quantity]


def test_a_median_of_weights_above_one_percent_is_out_of_bounds(
    tool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = row("ghfile-55529353766-qwen3-14b-4x4090")
    assert tool.main([written(tmp_path / "logs.jsonl", {**entry, "weights_gb_per_gpu": 7.2})]) == 1
    assert "the median is above 1%" in capsys.readouterr().out


def test_what_cannot_be_predicted_is_wrong_where_it_is_scored(tool: Any) -> None:
    unknown = {**row("ghfile-55529353766-qwen3-14b-4x4090"), "hf_config": None}
    assert {item.right for item in tool.compare(unknown) if item.quantity == "weights"} == {False}


def test_a_config_that_cannot_be_read_is_wrong_with_the_field_named(tool: Any) -> None:
    entry = row("ghfile-55529353766-qwen3-14b-4x4090")
    broken = {**entry, "hf_config": {**entry["hf_config"], "hidden_size": "many"}}
    (first, *_) = tool.compare(broken)
    assert first.right is False
    assert "hidden_size is 'many'" in first.note


def test_json_holds_every_comparison(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main([str(PUBLIC), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["good"] is True
    assert len(printed["rows"]) > 24


@pytest.mark.parametrize("content", ["{", "[]\n", None])
def test_a_file_that_is_no_log_ends_with_2(
    tool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    file = tmp_path / "logs.jsonl"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    assert tool.main([str(file)]) == 2
    assert "logs.jsonl" in capsys.readouterr().err
