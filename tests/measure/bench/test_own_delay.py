"""What the client says of its own delay: against numbers by hand, and while its process is stopped on purpose."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_hydra.measure.bench.client import CoreWaits, LoadProcesses, run_load
from sglang_hydra.measure.bench.measures import Sample, most_moved, moved_by_client, moved_by_server_waits, percentile
from sglang_hydra.measure.bench.messages import Histogram
from sglang_hydra.measure.bench.validity import Seen, invalid_reasons
from sglang_hydra.measure.bench.wires import Generate, Target
from tests.measure.bench.conftest import Start, load
from tests.measure.bench.test_client import prompts_of
from tests.run.launch.processes import wait_until


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


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_server_that_shares_its_core_makes_the_point_not_valid() -> None:
    """A server that computes for its answers, and another process on the one core that it has."""
    core = min(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:

        def started(*words: str) -> subprocess.Popen[str]:
            process = stack.enter_context(subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, {core})
            return process

        server = started("-c", COMPUTING_SERVER)
        assert server.stdout is not None
        target = Target(f"http://127.0.0.1:{server.stdout.readline().strip()}", "tiny", Generate())
        started("-c", "while True: pass")
        asked = load(num_prompts=20, concurrency=1, stream=False)
        run = run_load(target, asked, prompts_of(8), 1)
    assert all(sample.error is None for sample in run.samples)
    moved = moved_by_server_waits(run.samples)
    assert moved is not None
    assert moved["ttft_ms"]["mean"] > 0.2
    reasons = invalid_reasons(Seen(asked, run.samples, server_moved=moved))
    assert any("the server waited for a core" in reason for reason in reasons)


COMPUTING_SERVER = """
import json, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        until = time.process_time() + 0.03
        while time.process_time() < until:
            pass
        content = json.dumps({"text": "x" * 8, "meta_info": {"prompt_tokens": 1, "completion_tokens": 8}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words):
        pass

server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_waits_of_a_server_elsewhere_are_unknown() -> None:
    waits = CoreWaits("http://192.0.2.1:30000")
    waits.look()
    waits.put_into(there := sample())
    assert there.server_waits is None
    assert moved_by_server_waits([there]) is None


def test_waits_are_taken_out_of_ttft_and_shared_out_over_the_gaps() -> None:
    moved = moved_by_server_waits([sample(server_waits=(0.02, 0.03))])
    assert moved is not None
    assert moved["ttft_ms"]["p50"] == pytest.approx(0.2)
    assert moved["itl_ms"]["mean"] == pytest.approx(0.3)
