"""``suggest results=FOLDER rate=N``: how many replicas a rate needs, by what was measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Run, runner, valid
from tests.measure.report.folders import grid, result, write_sweep


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def asked(run: Run, folder: Path, rate: str = "100") -> Any:
    return valid("replicas", run("suggest", f"results={folder}", f"rate={rate}", "--json").out)["servers"]


def test_the_lower_end_of_the_noise_holds_the_rate(run: Run, tmp_path: Path) -> None:
    found = asked(run, write_sweep(tmp_path / "s", grid(repeats=3)))
    assert len(found) == 2  # two lengths of answers
    best = found[0]
    assert best["words"] == ["bench.concurrency=4", "bench.output_len=8"]
    low, high = best["noise"]
    assert low < best["requests_per_s"] < high
    assert best["replicas"] == math.ceil(100 / low)
    assert best["fewest"] == math.ceil(100 / high)
    assert best["gpus"] == 2 * best["replicas"]


def test_one_repeat_says_nothing_of_the_noise(run: Run, tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", grid())
    best = asked(run, folder)[0]
    assert best["noise"] is None
    assert best["replicas"] == best["fewest"] == math.ceil(100 / best["requests_per_s"])
    shown = run("suggest", f"results={folder}", "rate=100")
    assert shown.code == 0
    assert "bench.repeats=3 measures the noise" in " ".join(shown.out.split())


def test_only_what_met_its_slo_counts(run: Run, tmp_path: Path) -> None:
    points = []
    for number, (concurrency, seconds) in enumerate(((1, 0.05), (8, 0.01))):
        slo = {"ttft_ms": 2.0 if concurrency == 1 else 0.5, "itl_ms": None, "e2e_ms": None, "share": 0.99}
        workload = {"concurrency": concurrency, "output_len": 8, "slo": {**slo, "ttft_ms": 6.0}}
        found = result(seconds, workload)
        found["measures"]["slo_met"] = concurrency == 1
        point = {"words": [f"bench.concurrency={concurrency}"], "workload_id": f"{number}", "result": found}
        points.append(point)
    best = asked(run, write_sweep(tmp_path / "s", points))
    assert [item["words"] for item in best] == [["bench.concurrency=1"]]
    assert "TTFT" in best[0]["slo"]


def test_a_sweep_without_a_valid_point_says_nothing(run: Run, tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [{"words": ["one"], "failure": {"kind": "x", "findings": []}}])
    done = run("suggest", f"results={folder}", "rate=10")
    assert done.code == 2
    assert "No valid point" in done.out


@pytest.mark.parametrize(
    "words", [["rate=10"], ["results=x", "rate=0"], ["results=x", "rate=fast"], ["results=x", "rate=1", "gpu=h200"]]
)
def test_it_takes_results_and_a_rate(words: list[str], run: Run) -> None:
    done = run("suggest", *words)
    assert (done.code, "SUG002" in done.err) == (2, True)
    assert len(words) == 1 or words[-1] in done.err
