"""What the client says of its own delay: against numbers by hand, and while its process is stopped on purpose."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_hydra.measure.bench.client import LoadProcesses, run_load
from sglang_hydra.measure.bench.histogram import Histogram
from sglang_hydra.measure.bench.measures import Sample, most_moved, moved_by_client, percentile
from sglang_hydra.measure.bench.wires import Generate, Target
from tests.measure.bench.conftest import Start, load
from tests.measure.bench.test_client import prompts_of
from tests.run.launch.processes import wait_until

PACKAGES = Path(__file__).parents[3]


def sample(due: float | None = None, **own: Any) -> Sample:
    """TTFT 100 ms, gaps of 10 ms."""
    made = Sample(11, 0.0, due, 0.1, 0.2, [0.01] * 10, 8, 11, 0)
    for name, value in own.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("samples", "most"),
    [
        ([sample()], 0.0),
        ([sample(send_delay=0.05)], 0.0),  # counts from when it was sent
        ([sample(0.0, send_delay=0.05)], 0.5),
        ([sample(read_delay=0.01)], 0.1),
        ([sample(gap_delays=[(0, 10, 0.002)])], 0.2),
        ([sample(gap_delays=[(0, 1, 0.01)])], 0.1),  # a tenth of the mean
        ([sample(gap_delays=[(0, 5, 0.005), (5, 5, -0.005)])], 0.5),
    ],
)
def test_numbers_are_compared_with_those_without_delay(samples: list[Sample], most: float) -> None:
    found = most_moved(moved_by_client(samples))
    assert found is not None
    assert found[2] == pytest.approx(most)


def test_without_an_answer_nothing_is_moved() -> None:
    assert most_moved(moved_by_client([])) is None
    assert most_moved(moved_by_client([Sample(4, 0.0, error="HTTP 500")])) is None


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=60))
def test_a_histogram_is_never_too_low_and_little_too_high(seconds: list[float]) -> None:
    histogram = Histogram()
    for value in seconds:
        histogram.add(value)
    found, ordered = histogram.spread_ms(), sorted(seconds)
    assert found["mean"] == pytest.approx(sum(seconds) / len(seconds) * 1000, abs=1e-6)
    assert found["max"] == ordered[-1] * 1000
    for share in (50, 90, 99):
        place = next(value for rank, value in enumerate(ordered, 1) if rank >= len(ordered) * share / 100)
        value = histogram.percentile(share)
        assert place - 1e-9 <= value <= place * 1.07 + 2e-6
    assert percentile(ordered, 100) >= histogram.percentile(100) - 1e-9


def test_a_client_that_does_not_run_says_how_late_it_was(start: Start) -> None:
    """Its process is stopped for half a second while answers come and requests are due."""
    server = start(decode_ms=5)
    with LoadProcesses() as processes:
        (process,) = processes.running(1)
        stopped = threading.Thread(target=_stop_for_a_while, args=[process.pid, server.url])
        stopped.start()
        load_now = load(num_prompts=60, request_rate=40.0, concurrency=None)
        run = run_load(Target(server.url, "tiny", Generate()), load_now, prompts_of(8), 1, processes=processes)
        stopped.join()
    assert [one.error for one in run.samples] == [None] * 60
    assert run.own["lag_ms"]["max"] > 300
    assert run.own["send_delay_ms"]["max"] > 200
    name, _, share = most_moved(moved_by_client(run.samples)) or ("", "", 0.0)
    assert name in ("ttft_ms", "itl_ms")
    assert share > 0.05


def _stop_for_a_while(pid: int, url: str) -> None:
    """Once its first requests have come."""
    with httpx.Client(trust_env=False) as client:
        assert wait_until(lambda: client.get(f"{url}/requests").json()["requests"] > 3, 60)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(pid, signal.SIGCONT)


BUSY = """
import sys, time
sys.path.insert(0, sys.argv[1])
from sglang_hydra.measure.bench.priority import is_real_time, take_real_time
take_real_time()
print(is_real_time())
for seconds in (0.05, 0.5):
    time.sleep(0.01)
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass
    print(is_real_time())
"""


def test_real_time_priority_is_given_back_by_who_computes_for_long() -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BUSY, str(PACKAGES)], capture_output=True, text=True, check=True
    )
    seen = ended.stdout.split()
    if seen[0] == "False":
        pytest.skip("the system grants no real-time priority")
    assert seen == ["True", "True", "False"]
