"""The bench settings: what cannot be run is refused with what to type, and equal loads are one workload."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.compose.settings.bench import BenchNode
from sglang_hydra.measure.bench.checks import problems
from sglang_hydra.measure.bench.load import load_of, workload_record


def node(**settings: Any) -> dict[str, Any]:
    slo = {name[4:]: settings.pop(name) for name in list(settings) if name.startswith("slo_")}
    made = {**asdict(BenchNode()), **settings}
    return {**made, "slo": {**made["slo"], **slo}}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"concurrency": "ladder"},
        {"concurrency": 1, "request_rate": 0.5},
        {"warmup": 0, "min_duration": 0},
        {"dataset": "shared_prefix", "prefix_len": 512},
        {"range_ratio": 0.01},
        {"quality": True},
        {"slo_ttft_ms": 1, "slo_share": 1.0},
    ],
)
def test_loads_that_can_be_run(settings: dict[str, Any]) -> None:
    assert list(problems(node(**settings))) == []


@pytest.mark.parametrize(
    ("settings", "key", "id"),
    [
        ({"dataset": "randon"}, "dataset", "BEN001"),
        ({"client": "vllm"}, "client", "BEN001"),
        ({"cache": "hot"}, "cache", "BEN001"),
        ({"input_len": 0}, "input_len", "BEN001"),
        ({"output_len": -1}, "output_len", "BEN001"),
        ({"repeats": 0}, "repeats", "BEN001"),
        ({"prefix_groups": 0}, "prefix_groups", "BEN001"),
        ({"num_prompts": 0}, "num_prompts", "BEN001"),
        ({"warmup": -1}, "warmup", "BEN001"),
        ({"min_duration": math.inf}, "min_duration", "BEN001"),
        ({"min_duration": math.nan}, "min_duration", "BEN001"),
        ({"timeout": 0}, "timeout", "BEN001"),
        ({"request_rate": 0}, "request_rate", "BEN001"),
        ({"request_rate": math.inf}, "request_rate", "BEN001"),
        ({"request_rate": math.nan}, "request_rate", "BEN001"),
        ({"concurrency": 0}, "concurrency", "BEN001"),
        ({"concurrency": "lader"}, "concurrency", "BEN001"),
        ({"concurrency": True}, "concurrency", "BEN001"),
        ({"concurrency": 1.5}, "concurrency", "BEN001"),
        ({"range_ratio": 0}, "range_ratio", "BEN001"),
        ({"range_ratio": 1.1}, "range_ratio", "BEN001"),
        ({"dataset": "file"}, "path", "BEN002"),
        ({"path": "x"}, "path", "BEN002"),
        ({"dataset": "shared_prefix"}, "prefix_len", "BEN002"),
        ({"dataset": "shared_prefix", "prefix_len": 1024}, "prefix_len", "BEN002"),
        ({"slo_ttft_ms": 0}, "slo.ttft_ms", "BEN001"),
        ({"slo_share": 0}, "slo.share", "BEN001"),
        ({"slo_share": 99}, "slo.share", "BEN001"),
        ({"dataset": "file", "path": "/nowhere/prompts"}, "path", "BEN003"),
        ({"quality": "/nowhere/questions"}, "quality", "BEN004"),
    ],
)
def test_loads_that_cannot_be_run_say_what_to_type(settings: dict[str, Any], key: str, id: str) -> None:
    (finding,) = problems(node(**settings))
    assert (finding.id, finding.level, finding.fields[0]) == (id, "error", f"bench.{key}")
    assert str(next(iter(settings.values()))) in finding.message or id == "BEN002"
    assert finding.hint
    assert "bench." in finding.hint or "{" in finding.hint


def test_a_bad_load_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["model=tiny", "gpu=h100", "bench.output_len=0", "bench.concurrency=1,2", "sweep.dry_run=true"]
    assert entry(["bench", "-m", *words]) == 2
    said = capsys.readouterr()
    assert "BEN001" in said.out + said.err
    assert "bench.output_len=0 must be at least 1" in said.out + said.err


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 10),
        ({"concurrency": 8}, 80),
        ({"concurrency": 8, "num_prompts": 5}, 5),
        ({"request_rate": 0.5}, 10),
        ({"request_rate": 3.2}, 40),
    ],
)
def test_at_least_ten_requests_a_slot_are_sent(settings: dict[str, Any], count: int) -> None:
    assert load_of(node(**settings)).smallest_count == count


def test_a_load_without_rate_or_concurrency_is_one_request_at_a_time() -> None:
    assert load_of(node()).concurrency == 1
    assert load_of(node(request_rate=2.0)).concurrency is None


def test_a_workload_is_what_its_files_hold_and_not_where_they_lie(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text('{"prompt": "a"}')
    other.write_text('{"prompt": "a"}')
    same = [workload_record(node(dataset="file", path=str(path))) for path in (one, other)]
    assert same[0] == same[1]
    other.write_text('{"prompt": "b, and longer"}')
    assert workload_record(node(dataset="file", path=str(other))) != same[0]


@pytest.mark.parametrize("setting", ["timeout", "repeats"])
def test_how_often_and_how_patiently_is_no_part_of_a_workload(setting: str) -> None:
    assert workload_record(node(**{setting: 7})) == workload_record(node())
