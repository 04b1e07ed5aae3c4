"""What is told of a sweep while it runs: by lines, and on a terminal by a table below them."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.measure.sweep.points import Sweep
from sglang_hydra.measure.sweep.progress import FolderScreen, LiveScreen, Tally
from tests.measure.sweep.place import Place
from tests.run.launch.processes import wait_until

DEADLINE_S = 60.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def result(sweep: Sweep, place: Place, number: int, speed: float, state: str = "valid", reason: str = "") -> None:
    """As a job elsewhere leaves it."""
    point = list(sweep.points())[number]
    spread = {"p50": 1.0, "p99": 2.0}
    measures = {"output_throughput": speed, "ttft_ms": spread, "tpot_ms": spread}
    reasons = [reason] if reason else []
    record = {"state": state, "reasons": reasons, "words": list(point.words), "measures": measures}
    place.store.add_result(point.point_id, record)


def failure(sweep: Sweep, place: Place, number: int, message: str, final: bool) -> None:
    point = list(sweep.points())[number]
    record: dict[str, Any] = {"kind": "hang", "final": final, "findings": [{"message": message}]}
    place.store.add_failure(point.point_id, record)


@pytest.fixture
def sweep(place: Place) -> Sweep:
    planned = place.plan("bench.concurrency=1,2,3,4")
    place.store.begin(planned)
    return planned


def test_what_jobs_elsewhere_leave_is_told_once_and_when_it_happens(place: Place, sweep: Sweep) -> None:
    result(sweep, place, 0, 10.0)  # an earlier run
    said = io.StringIO()
    with FolderScreen(sweep, place.store, said, poll_s=0.01):
        failure(sweep, place, 1, "it hung", final=False)
        assert wait_until(lambda: "it hung" in said.getvalue(), DEADLINE_S)
        result(sweep, place, 1, 30.0)
        assert wait_until(lambda: "30.0" in said.getvalue(), DEADLINE_S)
        failure(sweep, place, 2, "it hung again", final=True)
        assert wait_until(lambda: "it hung again" in said.getvalue(), DEADLINE_S)
        result(sweep, place, 3, 99.0, "invalid", "answers are short")
    assert said.getvalue().splitlines() == [
        "1/4 failed bench.concurrency=2: hang: it hung (it is tried again)",
        "2/4 valid bench.concurrency=2: 30.0 output tokens/s, TTFT 1.0 ms (p99 2.0), TPOT 1.0 ms (p99 2.0)",
        "3/4 failed bench.concurrency=3: hang: it hung again",
        "4/4 invalid bench.concurrency=4: answers are short",
    ]


def test_who_is_at_what_is_told(place: Place, sweep: Sweep) -> None:
    said = io.StringIO()
    (group,) = sweep.groups
    with FolderScreen(sweep, place.store, said, poll_s=0.01), Claims(place.sweep_folder / "claims") as runner:
        claim = runner.take(f"servers/{group.server_id}")
        assert claim is not None
        assert wait_until(lambda: runner.runner in said.getvalue(), DEADLINE_S)
        runner.release(claim)
    assert said.getvalue() == f"server {group.server_id}: {runner.runner} works on it\n"


def test_what_lasts_is_told_once(place: Place, sweep: Sweep) -> None:
    said = io.StringIO()
    with LiveScreen(Tally(sweep, place.store), said) as screen:
        for _ in range(3):
            screen.server("5e", "another runner works on it")
        screen.server("5e", "starting")
    assert said.getvalue().splitlines() == ["server 5e: another runner works on it", "server 5e: starting"]


def test_a_terminal_has_a_table_with_the_best_and_the_time_to_go(place: Place, sweep: Sweep) -> None:
    said = Terminal()
    with FolderScreen(sweep, place.store, said, poll_s=0.01):
        result(sweep, place, 0, 10.0)
        result(sweep, place, 1, 30.0)
        result(sweep, place, 2, 99.0, "invalid", "\x1b[31mred")
        assert wait_until(lambda: "3 of 4 done, 1 invalid, 0 failed" in said.getvalue(), DEADLINE_S)
        assert wait_until(
            lambda: "best so far: 30.0 output tokens/s, bench.concurrency=2" in said.getvalue(), DEADLINE_S
        )
        assert wait_until(lambda: re.search(r"\d+ s to go", said.getvalue()) is not None, DEADLINE_S)
    assert "\x1b[31mred" not in said.getvalue()


def test_a_file_that_cannot_be_read_is_counted_once_and_ends_no_screen(place: Place, sweep: Sweep) -> None:
    said = io.StringIO()
    second = list(sweep.points())[1]
    with FolderScreen(sweep, place.store, said, poll_s=0.01):
        broken = place.store.point(second.point_id) / "result.json"
        broken.parent.mkdir(parents=True)
        broken.write_text("{")
        result(sweep, place, 0, 10.0)
        assert wait_until(lambda: "10.0" in said.getvalue(), DEADLINE_S)
        result(sweep, place, 2, 20.0)
        broken.unlink()
        assert wait_until(lambda: "20.0" in said.getvalue(), DEADLINE_S)
    assert len(said.getvalue().splitlines()) == 2
    assert Tally(sweep, place.store).count().done == 2
