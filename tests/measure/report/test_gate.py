"""``report NEW --base OLD``: exit 2 where a point fell by more than the limit and the noise."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from sglang_hydra.measure.report.comparing import difference, power
from sglang_hydra.measure.report.gate import gate as compare
from sglang_hydra.measure.report.reading import SweepResults, read_sweeps
from tests.commands import Run, runner, valid
from tests.measure.report.folders import grid, result, write_sweep


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def gate(run: Run, new: Path, base: Path, *words: str) -> tuple[int, str]:
    done = run("report", str(new), "--base", str(base), *words)
    return done.code, done.out


def test_it_fails_on_a_slower_server_and_passes_on_noise(run: Run, tmp_path: Path) -> None:
    base = write_sweep(tmp_path / "base", grid(repeats=3))
    slower = write_sweep(tmp_path / "slower", grid(1.1, repeats=3))
    noise = write_sweep(tmp_path / "noise", grid(1.005, repeats=3))
    faster = write_sweep(tmp_path / "faster", grid(0.8, repeats=3))
    assert gate(run, slower, base, "--max-regression", "3%")[0] == 2
    assert gate(run, noise, base, "--max-regression", "3%")[0] == 0
    assert gate(run, faster, base)[0] == 0
    assert gate(run, slower, base, "--max-regression", "15%")[0] == 0
    record = valid("gate", gate(run, slower, base, "--json")[1])
    fell = [item for item in record["judged"] if item["state"] == "fell"]
    assert {item["measure"] for item in fell} >= {"median TTFT", "median ITL"}
    assert all(item["interval"][0] > 0 and item["loss"] > 0.03 for item in fell)


def test_its_page_shows_both_sweeps(run: Run, tmp_path: Path) -> None:
    base = write_sweep(tmp_path / "base", grid(repeats=3))
    slower = write_sweep(tmp_path / "slower", grid(1.1, repeats=3))
    code, out = gate(run, slower, base)
    assert (code, "with both sweeps" in out) == (2, True)
    page = slower / "report.html"
    assert 'class="server s0 old"' in page.read_text()
    assert not (base / "report.html").exists()
    page.unlink()
    assert gate(run, slower, base, "--format", "markdown", "--slo", "ttft=1ms")[0] == 2
    assert 'class="beyond"' in page.read_text()
    page.unlink()
    page.mkdir()
    code, out = gate(run, slower, base)
    assert (code, "cannot be written" in out) == (2, True), "the verdict stands"


def test_worse_by_more_than_the_limit_within_the_noise_is_noise(run: Run, tmp_path: Path) -> None:
    base, new = grid(repeats=3), grid(1.06, repeats=3)
    for points in (base, new):
        for point in points:
            for name in ("ttft_ms", "itl_ms"):
                point["result"]["measures"][name]["p50"] *= 1 + 0.3 * (point["repeat"] - 2)
            point["result"]["measures"]["output_throughput_per_gpu"] *= 1 + 0.3 * (point["repeat"] - 2)
    code, out = gate(run, write_sweep(tmp_path / "new", new), write_sweep(tmp_path / "base", base), "--json")
    assert code == 0
    assert {item["state"] for item in valid("gate", out)["judged"]} == {"noise"}


@pytest.mark.thorough
def test_many_numbers_that_did_not_move_seldom_close_the_gate(tmp_path: Path) -> None:
    """36 numbers with a noise of 3 %: each alone falls by chance in 1 to 2 of 100 gates."""
    draw = random.Random(11)

    def noisy(name: str) -> SweepResults:
        points = [point for _ in range(2) for point in grid(repeats=3)]
        for number, point in enumerate(points):
            point["workload_id"] += f"-{number // 18}"
            point["words"] = [*point["words"], f"+x={number // 18}"]
            measures = point["result"]["measures"] = {
                "output_throughput_per_gpu": 100 * draw.gauss(1, 0.03),
                "ttft_ms": {"p50": 100 * draw.gauss(1, 0.03)},
                "itl_ms": {"p50": 10 * draw.gauss(1, 0.03)},
            }
            measures["output_throughput"] = 2 * measures["output_throughput_per_gpu"]
        return read_sweeps([write_sweep(tmp_path / name, points)])[0]

    sweeps = [noisy(str(number)) for number in range(12)]
    made = [compare(one, other, 0.03) for one, other in itertools.pairwise(sweeps)]
    assert all(len(each.judged) == 36 for each in made)
    assert sum(not each.ok for each in made) <= 3


def test_without_repeats_nobody_can_tell(run: Run, tmp_path: Path) -> None:
    base, slower = write_sweep(tmp_path / "base", grid()), write_sweep(tmp_path / "slower", grid(1.1))
    code, out = gate(run, slower, base, "--json")
    assert code == 2
    assert {item["state"] for item in valid("gate", out)["judged"]} == {"unknown"}
    assert gate(run, write_sweep(tmp_path / "same", grid(1.01)), base)[0] == 0


def test_only_equal_workloads_are_compared(run: Run, tmp_path: Path) -> None:
    other = grid(2.0, repeats=3)
    for point in other:
        point["workload_id"] += "-other"
    base = write_sweep(tmp_path / "base", grid(repeats=3))
    code, out = gate(run, write_sweep(tmp_path / "other", other), base, "--json")
    record = valid("gate", out)
    assert (code, record["judged"], record["ok"]) == (2, [], False)
    assert {item["state"] for item in record["lost"]} == {"missing"}


def test_a_point_whose_answers_got_wrong_fell(run: Run, tmp_path: Path) -> None:
    new = grid(repeats=3)
    for point in new[:3]:
        point["result"] = result(0.1, {"concurrency": 1}, "invalid", ["bench.quality: 2 of 20 right <@all>"])
    code, out = gate(
        run, write_sweep(tmp_path / "n", new), write_sweep(tmp_path / "b", grid(repeats=3)), "--format", "markdown"
    )
    assert code == 2
    assert "2 of 20 right" in out
    assert "invalid" in out
    assert "@" not in out
    assert "<" not in out


@pytest.mark.parametrize(
    "words",
    [["--max-regression", "3"], ["--max-regression", "200%"], ["--format", "html"], ["--max-regression", "many%"]],
)
def test_what_is_no_limit_is_refused(words: list[str], run: Run, tmp_path: Path) -> None:
    base = str(write_sweep(tmp_path / "base", grid()))
    done = run("report", base, "--base", base, *words)
    assert (done.code, "REP003" in done.err) == (2, True)
    assert "--base" in run("report", base, "--max-regression", "3%").err


def test_the_power_says_how_many_losses_are_seen() -> None:
    """Of 300 pairs with a loss of 5 % and a noise of 2 %, as many are told as the power of such repeats says."""
    draw = random.Random(20261123)

    def repeats(mean: float) -> list[float]:
        return [draw.gauss(mean, 0.02) for _ in range(5)]

    said, told = [], 0
    for _ in range(300):
        before, after = repeats(1.0), repeats(1.05)
        found = difference(before, after, 3)
        assert found is not None
        told += found.low > 0 and sum(after) / sum(before) - 1 > 0.03
        said.append(power(repeats(1.0), repeats(1.0), 0.03, 0.05, 3) or 0.0)
    assert sum(said) / len(said) == pytest.approx(told / 300, abs=0.08)
    assert power([1.0], [1.0, 1.1], 0.03, 0.05) is None
    assert power([1.0, 1.0], [1.0, 1.0], 0.03, 0.05) == 1.0
