"""The life of a server as a child process: how it starts, how it ends, and that nothing of it stays."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sglang_hydra.planning.engines.base import Command
from sglang_hydra.planning.engines.sglang import ENGINE
from sglang_hydra.run.launch.local import Launch, LocalServer, Outcome, describe_exit, serve
from sglang_hydra.run.launch.log import log_files
from sglang_hydra.text.errors import MachineError, ServerError
from tests.run.launch.place import DEADLINE_S
from tests.run.launch.processes import free_port, marked, wait_until

HERE = Path(__file__).parent
KEY = "sk-p'ass\\word-12345"


class Silent:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.waited: list[str] = []

    def line(self, stream: str, text: str) -> None:
        self.lines.append(text)

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        self.waited.append(milestone)

    def note(self, text: str) -> None:
        self.lines.append(text)

    def close(self) -> None:
        return


class Impatient(Silent):
    """Ends the time to get ready once the server has written a text, which on a busy machine comes late."""

    def __init__(self, launch: Launch, text: str) -> None:
        super().__init__()
        self._launch, self._text = launch, text

    def line(self, stream: str, text: str) -> None:
        super().line(stream, text)
        if self._text in text:
            end_time_to_start(self._launch)


def end_time_to_start(launch: Launch) -> None:
    object.__setattr__(launch, "ready_timeout_s", 0.5)


@pytest.fixture
def marker() -> Iterator[str]:
    """A word that marks every process of a test; none of them may be left at its end."""
    word = f"marker-{uuid.uuid4()}"
    yield word
    left = marked(word)
    for process in left:
        process.kill()
    assert left == []


def fake(marker: str, *faults: str, port: int | None = None, secret: str | None = None, **settings: object) -> Launch:
    port = port or free_port()
    argv = [sys.executable, str(HERE / "fake_server.py"), marker, str(port), *faults]
    defaults: dict[str, object] = {"ready_timeout_s": 60.0, "stop_timeout_s": 10.0, "health_timeout_s": 5.0}
    return Launch(Command(argv, argv, secret=secret), "127.0.0.1", port, **{**defaults, **settings})  # type: ignore[arg-type]


def get(launch: Launch, path: str, **headers: str) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", launch.port, timeout=DEADLINE_S)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("faults", "visit", "exit_code", "finding", "says"),
    [
        ([], "/end", 0, None, ""),
        (["slow"], "/end", 0, None, ""),
        (["children"], "/end", 0, None, ""),
        (["crash"], None, 4, "ENG008", "RuntimeError: out of luck"),
        (["leave"], None, 4, "ENG008", "exit code 0"),
        (["children", "crash"], None, 4, "ENG008", "exit code 7"),
        ([], "/die", 4, "ENG010", "exit code 3"),
        (["children"], "/die", 4, "ENG010", "exit code 3"),
    ],
)
def test_a_life_ends_in_its_exit_code(
    marker: str, faults: list[str], visit: str | None, exit_code: int, finding: str | None, says: str
) -> None:
    launch = fake(marker, *faults)
    outcome = serve(launch, Silent(), lambda server, seconds: get(launch, str(visit)))
    assert outcome.exit_code == exit_code
    assert [found.id for found in outcome.findings] == ([finding] if finding else [])
    assert says in "".join(found.message for found in outcome.findings)


@pytest.mark.parametrize("answer", [None, 200])
def test_a_server_whose_port_was_taken_meanwhile_is_ended_whoever_answers_there(
    marker: str, answer: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalServer, "health", lambda server: answer)
    outcome = serve(fake(marker, "portless"), Silent())
    assert (outcome.exit_code, outcome.kind) == (4, "port_in_use")
    assert outcome.findings[0].id in (["ENG008"] if answer is None else ["ENG008", "ENG010"])


@pytest.mark.parametrize(
    ("fault", "until", "kind", "ids"),
    [
        ("args:hang", "server_args=", "not_ready", ["ENG009"]),
        ("sick", '"GET /health HTTP/1.1" 503', "health_check", ["ENG009", "DIA053"]),
    ],
)
def test_a_server_that_is_not_ready_in_time_is_stopped_and_reported(
    marker: str, fault: str, until: str, kind: str, ids: list[str]
) -> None:
    launch = fake(marker, "children", fault)
    outcome = serve(launch, Impatient(launch, until))
    assert (outcome.exit_code, outcome.kind) == (4, kind)
    assert [found.id for found in outcome.findings] == ids
    assert "launch.ready_timeout=1" in str(outcome.findings[0].hint)


def test_how_far_it_had_come_is_said_of_a_server_that_hangs(marker: str) -> None:
    launch = fake(marker, "loaded:hang", milestones=ENGINE.milestones)
    (finding,) = serve(launch, Impatient(launch, "Load weight end")).findings
    assert "its last stage: weights loaded" in finding.message


def test_each_milestone_is_noted_once_with_the_seconds_it_took(marker: str) -> None:
    display = Silent()
    expected = [
        "reading its arguments",
        "joining its ranks",
        "loading weights",
        "weights loaded",
        "KV cache allocated",
        "capturing graphs",
        "graphs captured",
        "answering",
    ]
    with LocalServer(fake(marker, milestones=ENGINE.milestones), display) as server:
        assert server.wait_ready() is not None
        # It may answer before its last line is read.
        assert wait_until(lambda: list(server.milestones) == expected, DEADLINE_S), server.milestones
    assert sorted(server.milestones.values()) == list(server.milestones.values())
    noted = [line.partition(" s  ") for line in display.lines if line.partition(" s  ")[2] in expected]
    assert [words for _, _, words in noted] == expected
    assert all(float(seconds) >= 0 for seconds, _, _ in noted)


def test_a_failure_is_explained_by_the_line_that_decides(marker: str, tmp_path: Path) -> None:
    outcome = serve(fake(marker, "load:memory", log_file=tmp_path / "server.log"), Silent())
    happened, why = outcome.findings
    assert (outcome.kind, happened.id, why.id) == ("oom_load", "ENG008", "DIA001")
    assert happened.hint == f"its output is in {tmp_path / 'server.log'}"
    assert "CUDA out of memory" in (tmp_path / "server.log").read_text()


def test_a_program_that_is_not_there_is_reported(marker: str) -> None:
    argv = ["/nowhere/python", marker]
    outcome = serve(Launch(Command(argv, argv), "127.0.0.1", free_port()), Silent())
    assert outcome.exit_code == 4
    assert "cannot run /nowhere/python: No such file" in outcome.findings[0].message


def test_a_server_that_is_stopped_by_the_program_ends_in_0(marker: str) -> None:
    assert serve(fake(marker, "children"), Silent(), lambda server, seconds: server.stop()) == Outcome(0)


def test_what_on_ready_raises_stops_the_server(marker: str) -> None:
    def fail(server: LocalServer, seconds: float) -> None:
        raise KeyError(seconds)

    with pytest.raises(KeyError):
        serve(fake(marker, "children"), Silent(), fail)
    assert marked(marker) == []


def test_a_stubborn_server_is_killed_when_its_time_is_up(marker: str) -> None:
    with LocalServer(fake(marker, "stubborn", "children", stop_timeout_s=0.5), Silent()) as server:
        assert server.wait_ready() is not None
        server.stop()
        assert server.wait() == 128 + signal.SIGKILL
        assert marked(marker) == []


def test_asking_twice_kills_a_stubborn_server_at_once(marker: str) -> None:
    display = Silent()
    with LocalServer(fake(marker, "stubborn", stop_timeout_s=600), display) as server:
        assert server.wait_ready() is not None
        server.request_stop()
        assert wait_until(lambda: "I do not stop" in display.lines, DEADLINE_S)
        server.request_stop()
        assert server.wait() == 128 + signal.SIGKILL


def test_an_error_in_the_block_stops_the_server(marker: str) -> None:
    def block() -> None:
        with LocalServer(fake(marker, "children"), Silent()) as server:
            assert server.wait_ready() is not None
            raise KeyError

    with pytest.raises(KeyError):
        block()
    assert marked(marker) == []


def test_stopping_while_it_starts_is_no_failure(marker: str) -> None:
    with LocalServer(fake(marker, "hang"), Silent()) as server:
        threading.Timer(0.3, server.request_stop).start()
        assert server.wait_ready() is None


def guards_of(server: LocalServer) -> list[psutil.Process]:
    """The two processes of the guard: the outer one, which is our child, and the inner one."""
    assert server.pid is not None
    outer = psutil.Process(server.pid)
    (inner,) = outer.children()
    return [outer, inner]


@pytest.mark.parametrize("killed", [(0,), (1,), (0, 1)], ids=["outer", "inner", "both"])
def test_a_guard_that_is_killed_takes_the_server_and_all_below_it_with_it(marker: str, killed: tuple[int, ...]) -> None:
    """Processes in sessions of their own, too, and those that do not stop by themselves."""
    with LocalServer(fake(marker, "children"), Silent()) as server:
        assert server.wait_ready() is not None
        guards = guards_of(server)
        for number in killed:
            guards[number].kill()
        assert describe_exit(server.wait()).startswith("killed by SIGKILL")
        assert marked(marker) == []


def test_a_signal_to_all_of_the_guard_asks_once(marker: str) -> None:
    """As a job's end comes to each of its processes: the server gets its time to stop."""
    with LocalServer(fake(marker, "stubborn", stop_timeout_s=600), display := Silent()) as server:
        assert server.wait_ready() is not None
        for guard in guards_of(server):
            guard.send_signal(signal.SIGTERM)
        assert wait_until(lambda: "I do not stop" in display.lines, DEADLINE_S)
        assert not wait_until(lambda: server.pid is None, 0.5)
        server.request_stop()
        assert server.wait() == 128 + signal.SIGKILL
    assert display.lines.count("I do not stop") == 1


def test_a_busy_port_is_named_with_who_has_it_and_nothing_is_started(marker: str) -> None:
    with LocalServer(fake(marker), Silent()) as first:
        assert first.wait_ready() is not None
        with pytest.raises(MachineError) as caught:
            serve(fake(f"{marker}-second", port=first.launch.port), Silent())
    (finding,) = caught.value.findings
    assert finding.id == "ENG006"
    assert f"port {first.launch.port} is in use" in finding.message
    assert not sys.platform.startswith("linux") or "by process" in finding.message


def test_progress_shows_the_last_milestone(marker: str) -> None:
    display = Silent()
    with LocalServer(fake(marker, "slow", milestones={"Load weight begin": "loading weights"}), display) as server:
        assert server.wait_ready() is not None
    assert display.waited[-1] == "loading weights"


def size(path: Path) -> int:
    """Bytes in a file; 0 in the moment in which it gets another name."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_a_flood_of_output_neither_blocks_nor_outgrows_the_log(marker: str, tmp_path: Path) -> None:
    log = tmp_path / "run" / "server.log"
    with LocalServer(fake(marker, "flood", log_file=log), Silent()) as server:
        assert server.wait_ready() is not None
        assert wait_until(lambda: sum(map(size, log_files(log))) > 1 << 20, DEADLINE_S)
        server.stop()
    # It may just have turned over: then the newest file has only a few lines.
    assert sum(file.read_text().count("x" * 1000) for file in log_files(log)) > 500


def test_the_key_reaches_the_server_and_nothing_that_others_read(marker: str, tmp_path: Path) -> None:
    log, display = tmp_path / "server.log", Silent()
    launch = fake(marker, "key", secret=KEY, log_file=log)
    with LocalServer(launch, display) as server:
        assert server.wait_ready() is not None
        assert get(launch, "/v1/models") == 401
        assert get(launch, "/v1/models", Authorization=f"Bearer {KEY}") == 200
        processes = marked(marker)
        assert len(processes) == 3  # the guard is two of them
        readable = [repr((process.cmdline(), process.environ())) for process in processes]
    assert 'my key is ***, quoted "***"' in display.lines
    assert not any(KEY in text or repr(KEY)[1:-1] in text for text in [*readable, *display.lines, log.read_text()])
    assert KEY not in repr(launch)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_server_and_ends_in_130(marker: str, number: signal.Signals) -> None:
    with _program(marker, "5", "children") as program:
        program.send_signal(number)
        assert program.wait(DEADLINE_S) == 130
        assert marked(marker) == []


def test_a_second_signal_kills_a_server_that_does_not_stop(marker: str) -> None:
    with _program(marker, "600", "children", "stubborn") as program:
        program.send_signal(signal.SIGINT)
        _read_until(program, b"I do not stop")
        program.send_signal(signal.SIGINT)
        assert program.wait(DEADLINE_S) == 130
        assert marked(marker) == []


@pytest.mark.parametrize("faults", [["children"], ["children", "stubborn"], ["children", "flood"]])
def test_killing_us_leaves_nothing(marker: str, faults: list[str]) -> None:
    with _program(marker, "1", *faults) as program:
        assert len(marked(marker)) == 6
        program.kill()
        assert wait_until(lambda: marked(marker) == [], DEADLINE_S)


def test_killing_us_and_the_guard_leaves_no_server(marker: str) -> None:
    with _program(marker, "600", "stubborn") as program:
        parents = {process.ppid(): process for process in marked(marker)}
        guard = parents[program.pid]
        server = parents[guard.pid]
        program.kill()
        guard.kill()
        # Nobody may be left to take its exit code, so that a zombie stays.
        assert wait_until(lambda: server not in marked(marker), DEADLINE_S)


def test_closing_the_terminal_leaves_nothing(marker: str) -> None:
    ours, theirs = pty.openpty()
    argv = [sys.executable, str(HERE / "run_serve.py"), "5", marker, str(free_port()), "children"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        argv,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_terminal,
    ) as program:
        os.close(theirs)
        said = b""
        while b"READY" not in said:
            said += os.read(ours, 1 << 16)
        os.close(ours)
        assert program.wait(DEADLINE_S) == 130
    assert marked(marker) == []


def test_an_ignored_hangup_stays_ignored(marker: str) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with _program(marker, "5", preexec_fn=ignore) as program:
        program.send_signal(signal.SIGHUP)
        assert not wait_until(lambda: program.poll() is not None, 0.5)
        program.send_signal(signal.SIGTERM)
        assert program.wait(DEADLINE_S) == 130


def test_serving_from_another_thread_works_without_signals(marker: str) -> None:
    launch, outcomes = fake(marker), list[Outcome]()
    thread = threading.Thread(
        target=lambda: outcomes.append(serve(launch, Silent(), lambda server, seconds: get(launch, "/end")))
    )
    thread.start()
    thread.join(DEADLINE_S)
    assert outcomes == [Outcome(0)]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "exit code 1"),
        (200, "exit code 200"),
        (128 + 15, "killed by SIGTERM"),
        (-9, "killed by SIGKILL, as the system does where memory runs out"),
    ],
)
def test_an_exit_code_is_put_into_words(code: int, words: str) -> None:
    assert describe_exit(code) == words


def test_a_failure_carries_exit_code_4() -> None:
    assert ServerError.exit_code == 4


@contextlib.contextmanager
def _program(marker: str, stop_s: str, *faults: str, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
    """``serve`` in a process of its own, its server ready when the block begins."""
    argv = [sys.executable, str(HERE / "run_serve.py"), stop_s, marker, str(free_port()), *faults]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    started = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, **settings)  # type: ignore[call-overload]
    with started:
        try:
            _read_until(started, b"READY")
            yield started
        finally:
            started.kill()


def _read_until(program: subprocess.Popen[bytes], word: bytes) -> bytes:
    assert program.stderr is not None
    for line in program.stderr:
        if word in line:
            return line
    raise AssertionError(f"it ended with {program.wait(5)} before it said {word!r}")
