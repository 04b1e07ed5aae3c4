"""The fault matrix: a hundred lives of a server, each with its fault. Nothing may stay, and each is explained."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from sglang_hydra.planning.engines.base import Command
from sglang_hydra.planning.engines.sglang import ENGINE
from sglang_hydra.run.launch.local import Launch, LocalServer, Outcome, serve
from sglang_hydra.text.errors import MachineError
from tests.run.launch.processes import free_port, listens, marked, wait_until
from tests.run.launch.test_local import end_time_to_start

HERE = Path(__file__).parent
AT_ONCE = 6
GENEROUS_S = 60.0
FULL_DISK = Path("/dev/full")


@dataclass(frozen=True)
class Case:
    """One life: the server's faults, how it is ended, and what is to come of it.

    ``end``: itself (nothing is done), too late (its time to get ready ends when it has written the setting ``until``),
    stop (through the program), visit (its page that ends it), or the name of a signal that our own process gets.
    ``kind`` is the class of the failure, None where nothing failed.
    """

    faults: tuple[str, ...]
    end: str
    exit_code: int | None
    kind: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    times: int = 1

    @property
    def name(self) -> str:
        return f"{'+'.join(self.faults) or 'healthy'}, {self.end}"


def crash(at: str, how: str, kind: str, times: int = 1, *more: str) -> Case:
    return Case((*more, f"{at}:{how}"), "itself", 4, kind, times=times)


CASES = [
    # A crash at each stage of the start, with the words and the end that the software gives it.
    crash("args", "flag", "bad_flag", 2),
    crash("args", "wordless", "unknown", 2),
    crash("ranks", "rendezvous", "rendezvous_timeout", 2),
    crash("ranks", "killed", "host_oom", 2),
    crash("load", "memory", "oom_load", 2, "children"),
    crash("load", "shard", "missing_weights", 2),
    crash("load", "architecture", "unsupported_architecture", 2),
    crash("load", "disk", "disk_full", 2),
    crash("loaded", "memory", "oom_kv", 2),
    crash("loaded", "pool", "mem_fraction_too_low", 2, "zombies"),
    crash("kv", "memory", "oom_kv", 1),
    crash("kv", "wordless", "unknown", 1),
    crash("graphs", "graph", "oom_graph", 2, "children"),
    crash("graphs", "fault", "crash", 2),
    crash("graphed", "address", "port_in_use", 2),
    crash("graphed", "wordless", "unknown", 1, "zombies"),
    # The port was taken while it loaded, and it does not end by itself.
    Case(("portless", "children"), "itself", 4, "port_in_use", times=2),
    # It hangs at a stage, or listens and is never well.
    Case(("args:hang",), "too late", 4, "not_ready", {"until": "server_args="}, 2),
    Case(("load:hang", "children"), "too late", 4, "not_ready", {"until": "Load weight begin"}, 2),
    Case(("graphs:hang", "stubborn"), "too late", 4, "not_ready", {"until": "cuda graph", "stop_timeout_s": 0.5}, 2),
    Case(("sick", "zombies"), "too late", 4, "health_check", {"until": '"GET /health HTTP/1.1" 503'}, 2),
    # It is well, sooner or later, and is stopped.
    Case((), "stop", 0, times=9),
    Case(("slow",), "stop", 0, times=3),
    Case(("children",), "stop", 0, times=4),
    Case(("zombies",), "stop", 0, times=4),
    Case(("flood",), "stop", 0, times=3),
    Case(("flood", "stubborn", "children"), "stop", 0, settings={"stop_timeout_s": 0.5}, times=3),
    Case(("stubborn", "zombies"), "stop", 0, settings={"stop_timeout_s": 0.5}, times=3),
    Case((), "stop", 0, settings={"log_file": FULL_DISK}, times=3),
    Case(("flood",), "stop", 0, settings={"log_file": FULL_DISK}, times=2),
    # It is well and ends by itself.
    Case((), "/end", 0, times=2),
    Case(("children",), "/end", 0, times=2),
    Case(("zombies",), "/die", 4, "unknown", times=2),
    Case((), "/die", 4, "unknown", {"log_file": FULL_DISK}, times=1),
    # Our own process is told to end, or is killed, at any time.
    Case(("children",), "SIGINT", 130, times=3),
    Case(("zombies", "flood"), "SIGTERM", 130, times=3),
    Case(("stubborn",), "SIGHUP", 130, settings={"stop_timeout_s": 0.5}, times=3),
    Case(("children", "zombies"), "SIGKILL", -9, settings={"stop_timeout_s": 1.0}, times=4),
    Case(("stubborn", "flood"), "SIGKILL", -9, settings={"stop_timeout_s": 0.5}, times=3),
    Case(("load:hang",), "SIGKILL", -9, settings={"stop_timeout_s": 1.0}, times=3),
    # Somebody else has the port.
    Case((), "taken", 3, "ENG006", times=4),
]


class Quiet:
    """A display that keeps what it is noted, calls ``seen`` when a line has the text ``until``, and lets go of the
    rest."""

    def __init__(self, until: str = "", seen: Callable[[], None] = lambda: None) -> None:
        self.notes: list[str] = []
        self._until, self._seen = until, seen

    def line(self, stream: str, text: str) -> None:
        if self._until and self._until in text:
            self._seen()

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        return

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        return


@dataclass
class Life:
    """One run of a case: where it listened, how its processes are found, and what came of it."""

    case: Case
    number: int
    marker: str = field(default_factory=lambda: f"life-{uuid.uuid4()}")
    # Before there are threads: a program that one of them starts would for a moment hold what another one tries.
    port: int = field(default_factory=free_port)
    exit_code: int | None = None
    kind: str | None = None
    wrong: list[str] = field(default_factory=list)

    def live(self) -> Life:
        try:
            {"taken": self._taken}.get(self.case.end, self._killed if self.case.end.startswith("SIG") else self._run)()
        except Exception as failure:  # noqa: BLE001 - a hundred lives are judged together
            self.wrong.append(repr(failure))
        self._judge()
        return self

    def _launch(self) -> Launch:
        argv = [sys.executable, "-S", str(HERE / "fake_server.py"), self.marker, str(self.port), *self.case.faults]
        settings: dict[str, Any] = {"ready_timeout_s": GENEROUS_S, "stop_timeout_s": 10.0, **self.case.settings}
        settings |= {"health_timeout_s": 5.0, "milestones": ENGINE.milestones}
        settings.pop("until", None)
        return Launch(Command(argv, argv), "127.0.0.1", self.port, **settings)

    def _run(self) -> None:
        launch = self._launch()
        display = Quiet(self.case.settings.get("until", ""), lambda: end_time_to_start(launch))
        outcome = serve(launch, display, self._end_it)
        self.exit_code, self.kind = outcome.exit_code, outcome.kind
        if self.case.settings.get("log_file") == FULL_DISK:
            self._must_say_so(display, outcome)

    def _end_it(self, server: LocalServer, seconds: float) -> None:
        if self.case.end == "stop":
            server.stop()
        else:
            visit(self.port, self.case.end)

    def _must_say_so(self, display: Quiet, outcome: Outcome) -> None:
        if not any("No space left on device" in note for note in display.notes):
            self.wrong.append("that the log cannot be written was not said")
        if "LCH006" not in [finding.id for finding in outcome.findings]:
            self.wrong.append(f"no LCH006 in {outcome.findings}")

    def _killed(self) -> None:
        stop_s = str(self.case.settings.get("stop_timeout_s", 10.0))
        argv = [sys.executable, str(HERE / "run_serve.py"), stop_s, self.marker, str(self.port), *self.case.faults]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
        with subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as program:
            assert program.stderr is not None
            overdue = threading.Timer(GENEROUS_S, program.kill)
            overdue.start()
            word = b"loading weights" if "load:hang" in self.case.faults else b"READY"
            if not any(word in line for line in program.stderr):
                self.wrong.append(f"it ended before it said {word!r}")
            draining = threading.Thread(target=program.stderr.read)
            draining.start()
            program.send_signal(signal.Signals[self.case.end])
            self.exit_code = program.wait(GENEROUS_S)
            # The guard outlives us where we are killed, and only then.
            if self.case.end == "SIGKILL" and not wait_until(lambda: marked(self.marker) == [], GENEROUS_S):
                self.wrong.append("something lives on")
            draining.join(GENEROUS_S)
            overdue.cancel()

    def _taken(self) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen(1)
            with pytest.raises(MachineError) as refused:
                serve(self._launch(), Quiet())
        self.exit_code, self.kind = refused.value.exit_code, refused.value.findings[0].id
        if f"process {os.getpid()} (" not in refused.value.findings[0].message:
            self.wrong.append(f"the process is not named: {refused.value}")

    def _judge(self) -> None:
        if (self.exit_code, self.kind) != (self.case.exit_code, self.case.kind):
            self.wrong.append(f"ended in {self.exit_code}, {self.kind}; not {self.case.exit_code}, {self.case.kind}")
        if left := [process.info["cmdline"] for process in marked(self.marker)]:
            self.wrong.append(f"left {left}")
        if listens(self.port):
            self.wrong.append(f"port {self.port} is open")


def visit(port: int, path: str) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS_S)
    try:
        connection.request("GET", path)
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return
    finally:
        connection.close()


@pytest.fixture
def our_children() -> Callable[[], set[int]]:
    """What of our own children is new since the test began."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    return lambda: {process.pid for process in psutil.Process().children(recursive=True)} - before


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_a_hundred_lives_leave_nothing_and_each_is_explained(our_children: Callable[[], set[int]]) -> None:
    lives = [Life(case, number) for case in CASES for number in range(case.times)]
    assert len(lives) > 100
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ended = list(pool.map(Life.live, lives))
    wrong = [f"{life.case.name} #{life.number}: {'; '.join(life.wrong)}" for life in ended if life.wrong]
    assert wrong == []
    assert our_children() == set()
    assert [life.port for life in ended if listens(life.port)] == []
    assert {life.kind for life in ended} >= {"oom_load", "oom_kv", "oom_graph", "port_in_use", "not_ready", "disk_full"}
