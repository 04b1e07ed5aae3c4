"""Runs a server as a child process of ours: starts it, waits until it is ready, stops it, and leaves nothing behind."""

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
    from sglang_hydra.run.diagnose import Diagnosis


_POLL_S = 0.25
# A server that answers but is not ready logs each question.
_POLL_ANSWERING_S = 1.0
_TICK_S = 0.1
# Beyond its own deadline, for the guard to collect the dead.
_GUARD_EXTRA_S = 8.0
_KILL_TICK_S = 0.01
_DRAIN_S = 2.0
# What asyncio says of a port that was taken since the check. SGLang 0.5.2 does not end then: its warm-up goes on.
_CANNOT_LISTEN = "error while attempting to bind on address"


@dataclass(frozen=True)
class Launch:
    """One server to run here: its command, where it will listen, how it tells that it is ready. Times in seconds.

    ``stop_timeout_s`` is how long it may take to end by itself before it is killed. ``job`` is the Slurm job whose
    processes are the server, where they are no children of ours. The ports of a server that ``is_remote``, on another
    node of that job, are not looked at.
    """

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
        """Returns where a client on this machine reaches the server."""
        return f"http://{host_and_port(client_host(self.host), self.port)}"


class Outcome(NamedTuple):
    """The end of a server: our exit code and, if it went wrong, why. ``kind`` is the class of the failure, as
    ``diagnose`` names it, ``unknown`` included; None where nothing failed. ``diagnosis`` is there for a known class,
    ``server_exit`` is the server's own exit code, None where it was stopped."""

    exit_code: int
    findings: tuple[Finding, ...] = ()
    kind: str | None = None
    diagnosis: Diagnosis | None = None
    server_exit: int | None = None


class LocalServer:
    """A server that runs while the ``with`` block does.

    ``start``, ``wait_ready`` and ``wait`` are for one thread; ``request_stop`` may come from anywhere, a signal
    handler too.
    """

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
        """How far the server has come, in words, each with the seconds from its start to that."""
        self.failure: Failure | None = None
        """Why it went wrong, once it has."""
        self.without_port = False
        """Whether its output says that it cannot listen: another process answers there."""
        self.owner: Owner | None = None
        """Who listens on the port, as it was seen last; None before anybody answered there."""

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
        """Returns the process group and session of everything that was started; None before and after."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Starts the server. Raises MachineError where it could not listen or cannot be run at all."""
        if os.name != "posix":
            raise MachineError(_not_posix())
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
        """Waits until the server can serve; the seconds it took, None if it was asked to stop before.

        Raises ServerError where it ended or was not ready in time (then it has been stopped).
        """
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
        """Returns whether the port is another process's, as far as it was looked at."""
        return self.without_port or (self.owner is not None and self.owner.whose == FOREIGN)

    def look_at_port(self) -> bool:
        """Looks again who listens on the port. False where that is another process, or one beside the server."""
        if not self.launch.is_remote:
            self.owner = port_owner(self.launch.host, self.launch.port, self.pid, self.launch.job)
        return not self.lost_port

    def port_lost(self, what: str, id: str = "ENG010") -> ServerError:
        """Ends the server, and is the error for a port that another process has taken, which it names."""
        if self.owner is None or self.owner.whose != FOREIGN:
            self.look_at_port()
        self.stop()
        there = self.owner.who if self.owner is not None and self.owner.whose == FOREIGN else ""
        port = f"port {self.launch.port}"
        why = f"it cannot listen on {port}" if self.without_port else f"{port} is answered by another process"
        advice = "port=0 takes a free one; or end the other process"
        return self.failed(id, f"{what}: {why}" + (f": {there}" if there else ""), advice=advice, kind="port_in_use")

    def wait(self) -> int:
        """Waits for the server's end, however it comes about; its exit code, 128 + N for signal N."""
        assert self._process is not None
        code = wait_for_end(self._process)
        self._kill_orphans()
        return code

    def until_end(self) -> None:
        """Waits for the server's end. Raises ServerError where it fails, and nobody has asked it to end."""
        code = self.wait()
        if self.lost_port and not self.stop_requested:
            raise self.port_lost("the server was stopped")
        if code != 0 and not self.stop_requested:
            raise self.failed("ENG010", f"the server ended: {describe_exit(code)}", code)

    def outcome(self, exit_code: int, findings: Sequence[Finding] = ()) -> Outcome:
        """Returns how it went, with what there is to say of the log, and the class of the failure if there was one."""
        about_log = self.log_finding
        found = (*findings, *([about_log] if about_log else []))
        failed = self.failure
        if failed is None:
            return Outcome(exit_code, found)
        return Outcome(exit_code, found, failed.kind, failed.diagnosis, failed.exit_code)

    def request_stop(self) -> None:
        """Asks the server to end, and returns at once. Asked twice, it is killed."""
        self._stop_requested = True
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ends the server and everything that it started, within its stop timeout. Harmless when it has ended."""
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
        """Ends the server of a guard that was killed itself: its second process does so, and is waited for. Should both
        have been killed, what is known of the server's processes is their group, and that they write into our pipes.
        They are killed until no one holds a pipe: a process that is still ending could hold its port and GPU memory,
        too."""
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
        """Returns the error for a server that went wrong: what happened, why as far as its output tells, and what to
        type. ``kind`` is the class of the failure where it is known without its output."""
        assert self._output is not None
        self._output.close(_DRAIN_S)
        self.failure = failure_of(id, what, self._output.lines, exit_code, self.launch.log_file, advice)
        if kind is not None and self.failure.diagnosis is None:
            self.failure = self.failure._replace(kind=kind)
        return ServerError(*self.failure.findings)

    @property
    def log_finding(self) -> Finding | None:
        """Returns the warning for a log that does not hold everything."""
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
            # Whoever takes the question, whatever it answers: another process is the end of the start.
            taken = status is not None or time.monotonic() - asked_at > _POLL_ANSWERING_S
            if taken and not self.look_at_port():
                return
            if status == HEALTHY:
                ready.set()
                return
            over.wait(_POLL_S if status is None else _POLL_ANSWERING_S)

    def health(self) -> int | None:
        """Returns the status that the server's health page answers now, 200 if it can serve; None without one."""
        launch = self.launch
        return health_of(client_host(launch.host), launch.port, launch.health_path, launch.health_timeout_s)

    def _too_late(self) -> ServerError:
        limit_s = self.launch.ready_timeout_s
        self.stop()
        what = f"the server was not ready after {limit_s:.0f} s and has been stopped"
        assert self._output is not None
        if self._output.milestone:
            what += f"; it had come to: {self._output.milestone}"
        return self.failed("ENG009", what, advice=f"launch.ready_timeout={limit_s * 2:.0f} waits longer")


def serve(
    launch: Launch,
    display: Display | None = None,
    on_ready: Callable[[LocalServer, float], None] | None = None,
    *,
    loud: bool = True,
) -> Outcome:
    """Runs a server until it ends or someone ends us, and says how that went.

    ``on_ready`` is called with the server and the seconds it took; what it raises stops the server. SIGINT, SIGTERM
    and SIGHUP stop the server, a second one kills it; the exit code is then 130. Unless ``loud`` is false, that is
    written to stderr. Raises MachineError where the server cannot be started here.
    """
    return run_until_end(LocalServer(launch, display or display_for()), on_ready, loud=loud)


def run_until_end(
    server: LocalServer,
    on_ready: Callable[[LocalServer, float], None] | None,
    what: str = "the server",
    *,
    loud: bool = True,
) -> Outcome:
    """Returns the same for one that is made already, or for several as one; ``what`` names it."""
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


def _not_posix() -> Finding:
    return Finding(
        level="error",
        id="ENG011",
        message=f"servers are started on Linux and macOS, this is {sys.platform}",
        fields=("launch",),
        hint=f"{program()} plan works here; start the server where SGLang runs",
    )


_GUARD = Path(__file__).with_name("guard.py")


def start_guarded(command: Command, stop_s: float) -> tuple[subprocess.Popen[bytes], int]:
    """Returns the guard, and a descriptor: when it is closed, the server is stopped; when it can be read, all of the
    guard has ended. ``stop_s`` is how long the server may take to end by itself, in seconds."""
    watched, watch = (end.detach() for end in socket.socketpair())
    passed = [watched]
    # Python holds back what goes into a pipe, and the lines are wanted as they come.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PATH": _search_path(command), **command.env}
    environment.pop(KEY_FD, None)
    if command.secret is not None:
        passed.append(_pipe_with(command.secret))
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


def _search_path(command: Command) -> str:
    """Tools of the engine's environment (ninja, for one) are found by what the engine runs."""
    own, rest = os.path.dirname(command.argv[0]), os.environ.get("PATH", os.defpath)
    return f"{own}{os.pathsep}{rest}" if own else rest


def _pipe_with(secret: str) -> int:
    """Returns the reading end of a pipe that holds the secret and then ends. A pipe takes 4 KiB at once everywhere."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        os.write(writing, secret.encode("utf-8", "surrogateescape"))
    finally:
        os.close(writing)
    return reading
