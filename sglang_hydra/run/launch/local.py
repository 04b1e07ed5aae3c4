"""Runs a server as a child process: starts it, waits until it is ready, stops it, and leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.ports import host_and_port
from sglang_hydra.planning.engines.base import Command
from sglang_hydra.run.launch.child_rank import pipe_with
from sglang_hydra.run.launch.child_sglang import KEY_FD
from sglang_hydra.run.launch.display import Display, display_for
from sglang_hydra.run.launch.failure import Failure, failure_of
from sglang_hydra.run.launch.listening import FOREIGN, Owner, port_owner
from sglang_hydra.run.launch.log import BoundedLog
from sglang_hydra.run.launch.output import Output
from sglang_hydra.run.launch.port import HEALTHY, client_host, health_of, port_obstacle
from sglang_hydra.run.launch.processes import writers_of
from sglang_hydra.run.launch.signals import describe_exit, stopping_on_signals, wait_for_end
from sglang_hydra.text.errors import MachineError, ServerError
from sglang_hydra.text.exit_codes import INTERRUPTED
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import program

if TYPE_CHECKING:
    from sglang_hydra.run.diagnose.diagnosis import Diagnosis


_POLL_S = 0.25
# A server that answers before it is ready logs each request.
_POLL_ANSWERING_S = 1.0
_TICK_S = 0.1
# Beyond its own deadline, for the guard to collect dead processes.
_GUARD_EXTRA_S = 8.0
_KILL_TICK_S = 0.01
_DRAIN_S = 2.0
# asyncio logs this when the port was taken after the check. SGLang 0.5.2 does not end then: its warmup goes on.
_CANNOT_LISTEN = "error while attempting to bind on address"


@dataclass(frozen=True)
class Launch:
    """One server to run here: its command, its address, its readiness check. Times are in seconds.

    ``stop_timeout_s`` is the time to end by itself before it is killed. ``job`` is the Slurm job whose processes are
    the server, when they are not our children. ``is_remote``: the server runs on another node of that job, so its ports
    are not checked."""

    command: Command
    host: str
    port: int
    health_path: str = "/health"
    health_timeout_s: float = 30.0
    ready_timeout_s: float = 1800.0
    stop_timeout_s: float = 10.0
    milestones: Mapping[str, str] = field(default_factory=dict)
    log_file: Path | None = None
    job: str = ""
    is_remote: bool = False

    @property
    def url(self) -> str:
        """Returns the URL for a client on this machine."""
        return f"http://{host_and_port(client_host(self.host), self.port)}"


class Outcome(NamedTuple):
    """The end of a server: our exit code and, if it failed, why. ``kind`` is the failure class of ``diagnose``,
    ``unknown`` included; None without a failure. ``diagnosis`` is set for a known class. ``server_exit`` is the
    server's own exit code, None if it was stopped."""

    exit_code: int
    findings: tuple[Finding, ...] = ()
    kind: str | None = None
    diagnosis: Diagnosis | None = None
    server_exit: int | None = None


class LocalServer:
    """A server that runs during its ``with`` block.

    Call ``start``, ``wait_ready`` and ``wait`` from one thread; ``request_stop`` from anywhere, signal handlers too."""

    def __init__(self, launch: Launch, display: Display) -> None:
        self.launch = launch
        self._display = display
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: int | None = None
        self._pipes: list[int] = []
        self._output: Output | None = None
        self._stop_requested = False
        self._was_ready = False
        self._started_at = 0.0
        self.milestones: dict[str, float] = {}
        """The startup milestones reached, each with the seconds from the start."""
        self.failure: Failure | None = None
        """Why it failed, or None."""
        self.without_port = False
        """Whether its output says that it cannot listen: another process has the port."""
        self.owner: Owner | None = None
        """The last seen owner of the port; None before anybody answered there."""

    def __enter__(self) -> LocalServer:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self.stop()

    @property
    def stop_requested(self) -> bool:
        return self._stop_requested

    @property
    def pid(self) -> int | None:
        """Returns the process id, which is also the group and session of all its processes; None unless it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Starts the server. Raises MachineError if it cannot listen or cannot run."""
        if os.name != "posix":
            message = f"servers are started on Linux and macOS, this is {sys.platform}"
            hint = f"{program()} plan works here; start the server where SGLang runs"
            raise MachineError(Finding("error", "ENG011", message, ("launch",), hint))
        obstacle = None if self.launch.is_remote else port_obstacle(self.launch.host, self.launch.port)
        if obstacle is not None:
            raise MachineError(obstacle)
        command = self.launch.command
        log = BoundedLog(self.launch.log_file) if self.launch.log_file is not None else None
        self._output = Output(
            self._line, self.launch.milestones, log, command.secret, reached=self._reached, warn=self._display.note
        )
        self._started_at = time.monotonic()
        self._process, self._watch = start_guarded(command, self.launch.stop_timeout_s)
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            assert pipe is not None
            self._pipes.append(os.fstat(pipe.fileno()).st_ino)
            self._output.follow(name, pipe)
        if self._stop_requested:
            self.request_stop()

    def wait_ready(self) -> float | None:
        """Waits until the server is ready. Returns the seconds it took, or None if it was asked to stop before.

        Raises ServerError if it ended, lost its port, or was not ready in time; it is stopped then."""
        assert self._process is not None
        assert self._output is not None
        ready, over = threading.Event(), threading.Event()
        threading.Thread(target=self._ask_for_health, args=(ready, over), name="server-health", daemon=True).start()
        try:
            while not ready.wait(_TICK_S):
                elapsed_s = time.monotonic() - self._started_at
                if self._process.poll() is not None or self.lost_port:
                    break
                if elapsed_s > self.launch.ready_timeout_s:
                    raise self._too_late()
                self._display.waiting(elapsed_s, self._output.milestone)
        finally:
            over.set()
            self._display.close()
        elapsed_s = time.monotonic() - self._started_at
        if self._stop_requested:
            return None
        self._was_ready = self._process.poll() is None and not self.lost_port
        if self.lost_port:
            raise self.port_lost("the server failed to start", "ENG008")
        if self._process.poll() is not None:
            code = self.wait()
            how = f"{describe_exit(code)} after {elapsed_s:.0f} s"
            raise self.failed("ENG008", f"the server failed to start: {how}", code)
        return elapsed_s

    @property
    def lost_port(self) -> bool:
        """Returns whether another process has the port, as of the last look."""
        return self.without_port or (self.owner is not None and self.owner.whose == FOREIGN)

    def look_at_port(self) -> bool:
        """Checks again who listens on the port. Returns False if another process does."""
        if not self.launch.is_remote:
            self.owner = port_owner(self.launch.host, self.launch.port, self.pid, self.launch.job)
        return not self.lost_port

    def port_lost(self, what: str, id: str = "ENG010") -> ServerError:
        """Stops the server and returns the error about a port that another process has taken, with its name."""
        if self.owner is None or self.owner.whose != FOREIGN:
            self.look_at_port()
        self.stop()
        there = self.owner.who if self.owner is not None and self.owner.whose == FOREIGN else ""
        port = f"port {self.launch.port}"
        why = f"it cannot listen on {port}" if self.without_port else f"{port} is answered by another process"
        advice = "port=0 takes a free one; or end the other process"
        return self.failed(id, f"{what}: {why}" + (f": {there}" if there else ""), advice=advice, kind="port_in_use")

    def wait(self) -> int:
        """Waits for the server's end. Returns its exit code, 128 + N for signal N."""
        assert self._process is not None
        code = wait_for_end(self._process)
        self._kill_orphans()
        return code

    def until_end(self) -> None:
        """Waits for the server's end. Raises ServerError if it failed without a stop request."""
        code = self.wait()
        if self.lost_port and not self.stop_requested:
            raise self.port_lost("the server was stopped")
        if code != 0 and not self.stop_requested:
            raise self.failed("ENG010", f"the server ended: {describe_exit(code)}", code)

    def outcome(self, exit_code: int, findings: Sequence[Finding] = ()) -> Outcome:
        """Returns the outcome, with a finding about the log and the class of a failure."""
        found, failed = (*findings, *filter(None, [self.log_finding])), self.failure
        if failed is None:
            return Outcome(exit_code, found)
        return Outcome(exit_code, found, failed.kind, failed.diagnosis, failed.exit_code)

    def request_stop(self) -> None:
        """Asks the server to end, and returns at once. A second request kills it."""
        self._stop_requested = True
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ends the server and all its processes within its stop timeout. Does nothing after its end."""
        process, output = self._process, self._output
        if process is not None and process.poll() is None:
            if not self._stop_requested:
                self.request_stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.launch.stop_timeout_s + _GUARD_EXTRA_S)
            if process.poll() is None:
                process.kill()
            self.wait()
        if output is not None:
            output.close(_DRAIN_S)
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None
        self._display.close()

    def _kill_orphans(self) -> None:
        """Ends the server after its guard was killed: the guard's second process does it, and this waits. If both were
        killed, only the process group and the writers of our pipes are known. Kills them until no one holds a pipe,
        because a process that is still ending may hold the port and GPU memory."""
        process = self._process
        if process is None or (process.returncode or 0) >= 0:
            return
        if self._watch is not None:
            select.select([self._watch], [], [], self.launch.stop_timeout_s + _GUARD_EXTRA_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + _GUARD_EXTRA_S
        while (left := writers_of(self._pipes)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_KILL_TICK_S)

    def failed(
        self, id: str, what: str, exit_code: int | None = None, advice: str | None = None, kind: str | None = None
    ) -> ServerError:
        """Returns the error for a failed server: what happened, why according to its output, and what to type. ``kind``
        is the class if it is known without the output."""
        assert self._output is not None
        self._output.close(_DRAIN_S)
        self.failure = failure_of(id, what, self._output.lines, exit_code, self.launch.log_file, advice)
        if kind is not None and self.failure.diagnosis is None:
            self.failure = self.failure._replace(kind=kind)
        return ServerError(*self.failure.findings)

    @property
    def log_finding(self) -> Finding | None:
        """Returns a warning about an incomplete log, or None."""
        problem = self._output.log_problem if self._output is not None else None
        if problem is None:
            return None
        message = f"the log {self.launch.log_file} could not be written: {problem}"
        return Finding("warning", "LCH006", message, ("hydra.run.dir",), "hydra.run.dir=/another/folder")

    def _line(self, stream: str, text: str) -> None:
        if _CANNOT_LISTEN in text and f"', {self.launch.port}" in text:
            self.without_port = True
            if self._was_ready and self._process is not None:
                self._process.send_signal(signal.SIGTERM)
        self._display.line(stream, text)

    def _reached(self, words: str) -> None:
        seconds = time.monotonic() - self._started_at
        self.milestones[words] = seconds
        self._display.note(f"{seconds:6.1f} s  {words}")

    def _ask_for_health(self, ready: threading.Event, over: threading.Event) -> None:
        while not over.is_set():
            asked_at = time.monotonic()
            status = self.health()
            # Any answer or slow response needs the look: another process on the port ends the start.
            taken = status is not None or time.monotonic() - asked_at > _POLL_ANSWERING_S
            if taken and not self.look_at_port():
                return
            if status == HEALTHY:
                ready.set()
                return
            over.wait(_POLL_S if status is None else _POLL_ANSWERING_S)

    def health(self) -> int | None:
        """Returns the current status of the health page, 200 when ready; None without an answer."""
        launch = self.launch
        return health_of(client_host(launch.host), launch.port, launch.health_path, launch.health_timeout_s)

    def _too_late(self) -> ServerError:
        limit_s = self.launch.ready_timeout_s
        self.stop()
        stage = self._output.milestone if self._output is not None else ""
        what = f"the server was not ready after {limit_s:.0f} s and has been stopped"
        what += f"; its last stage: {stage}" if stage else ""
        return self.failed("ENG009", what, advice=f"launch.ready_timeout={limit_s * 2:.0f} waits longer")


def serve(
    launch: Launch,
    display: Display | None = None,
    on_ready: Callable[[LocalServer, float], None] | None = None,
    *,
    loud: bool = True,
) -> Outcome:
    """Runs a server until it ends or a signal ends us, and returns its outcome.

    Calls ``on_ready`` with the server and the startup seconds; an exception in it stops the server. SIGINT, SIGTERM and
    SIGHUP stop the server, a second one kills it; the exit code is then 130. With ``loud`` stderr reports this. Raises
    MachineError if the server cannot be started here."""
    return run_until_end(LocalServer(launch, display or display_for()), on_ready, loud=loud)


def run_until_end(
    server: LocalServer,
    on_ready: Callable[[LocalServer, float], None] | None,
    what: str = "the server",
    *,
    loud: bool = True,
) -> Outcome:
    """Runs an existing server like ``serve``, or several as one; ``what`` names it in messages."""
    with stopping_on_signals(server.request_stop, what, loud=loud) as signals:
        try:
            server.start()
            ready_s = server.wait_ready()
            if ready_s is not None and on_ready is not None:
                on_ready(server, ready_s)
            server.until_end()
        except ServerError as error:
            return server.outcome(error.exit_code, error.findings)
        finally:
            server.stop()
    return server.outcome(INTERRUPTED if signals else 0)


_GUARD = Path(__file__).with_name("guard.py")


def start_guarded(command: Command, stop_s: float) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a command under a guard. Returns the guard's process and a descriptor: closing it stops the server; it
    becomes readable when the whole guard has ended. ``stop_s`` is the time in seconds to end before it is killed."""
    watched, watch = (end.detach() for end in socket.socketpair())
    passed = [watched]
    # Python buffers output to a pipe, and the lines are needed at once.
    # The folder of the engine's interpreter comes first, so that its tools (such as ninja) are found.
    path = filter(None, (os.path.dirname(command.argv[0]), os.environ.get("PATH", os.defpath)))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PATH": os.pathsep.join(path), **command.env}
    environment.pop(KEY_FD, None)
    if command.secret is not None:
        passed.append(pipe_with(command.secret.encode("utf-8", "surrogateescape")))
        environment[KEY_FD] = str(passed[-1])
    guard = [sys.executable, "-I", "-S", str(_GUARD), str(watched), str(stop_s)]
    try:
        process = subprocess.Popen(
            [*guard, *command.argv],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=passed,
        )
    except BaseException:
        os.close(watch)
        raise
    finally:
        for end in passed:
            os.close(end)
    return process, watch
