"""Runs several servers and a router as one: all or none at the start, the router first at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sglang_hydra.run.launch.display import Display
from sglang_hydra.run.launch.local import Launch, LocalServer, Outcome
from sglang_hydra.run.launch.signals import describe_exit, stopping_on_signals
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.errors import ServerError
from sglang_hydra.text.exit_codes import INTERRUPTED
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import write

_TICK_S = 0.1
ROUTER = "router"


class Member(NamedTuple):
    """One server of the crew. Requests are served while of every ``role`` one is alive."""

    name: str
    role: str
    launch: Launch


class Tagged(Display):
    """A display that many share: each line begins with the name of its server."""

    def __init__(self, display: Display, name: str, lock: threading.Lock) -> None:
        self._display, self._name, self._lock = display, name, lock
        self.milestone = ""

    def line(self, stream: str, text: str) -> None:
        with self._lock:
            self._display.line(stream, f"[{self._name}] {text}")

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        self.milestone = milestone

    def note(self, text: str) -> None:
        with self._lock:
            self._display.note(f"[{self._name}] {text}")

    def close(self) -> None:
        self.milestone = ""


class Crew:
    """The servers and the router of one topology. Everything but ``request_stop`` is for one thread."""

    def __init__(self, members: Sequence[Member], router: Launch, display: Display, *, go_on: bool) -> None:
        self._display, self._go_on = display, go_on
        self._lock = threading.Lock()
        self._roles = {member.name: member.role for member in members}
        launches = {**{member.name: member.launch for member in members}, ROUTER: router}
        self._tags = {name: Tagged(display, name, self._lock) for name in launches}
        self._servers = {name: LocalServer(launch, self._tags[name]) for name, launch in launches.items()}
        self._started: set[str] = set()
        self._stops = 0

    def server(self, name: str) -> LocalServer:
        """One server of the crew, or its router."""
        return self._servers[name]

    def run(self, on_ready: Callable[[float], None]) -> Outcome:
        """Starts the servers, then the router, calls ``on_ready`` with the seconds that took, and runs until someone
        ends us or too few are left. Raises MachineError where one cannot be started here."""
        began = time.monotonic()
        with stopping_on_signals(self.request_stop, "the router and the servers") as signals:
            try:
                self._start(list(self._roles))
                if self._stops == 0:
                    self._start([ROUTER])
                if self._stops == 0:
                    on_ready(time.monotonic() - began)
                    self._watch()
            except ServerError as failure:
                return self._outcome(failure.exit_code, failure.findings)
            finally:
                self._display.close()
                self.stop()
        return self._outcome(INTERRUPTED if signals else 0)

    def _outcome(self, exit_code: int, findings: Sequence[Finding] = ()) -> Outcome:
        """How it ended, with what there is to say of the logs, and the class of the failure if there was one."""
        about_logs = [server.log_finding for server in self._servers.values()]
        kinds = [server.failure.kind for server in self._servers.values() if server.failure is not None]
        kind = kinds[-1] if kinds and findings else None
        return Outcome(exit_code, (*findings, *filter(None, about_logs)), kind)

    def request_stop(self) -> None:
        """Asks for the end of all and returns at once; asked twice, all are killed. For signal handlers too."""
        self._stops += 1
        if self._stops > 1:
            for server in self._servers.values():
                for _ in range(2):
                    server.request_stop()

    def stop(self) -> None:
        """Ends the router, so that no request finds a server gone, and then the servers, all at a time."""
        self._servers[ROUTER].stop()
        workers = [self._servers[name] for name in self._roles]
        for server in workers:
            if server.pid is not None and not server.stop_requested:
                server.request_stop()
        for server in workers:
            server.stop()

    def _start(self, names: Sequence[str]) -> None:
        """Starts these and waits until all are ready, or somebody asks for the end.

        Raises ServerError for the first that fails, of these or of those that run already.
        """
        began = time.monotonic()
        for name in names:
            if self._stops == 0:
                self._servers[name].start()
                self._started.add(name)
        waits = [_Wait(name, self._servers[name]) for name in names if self._stops == 0]
        while self._stops == 0 and any(wait.is_alive() for wait in waits):
            time.sleep(_TICK_S)
            failed = [wait.failure for wait in waits if wait.failure is not None]
            if failed:
                raise failed[0]
            for name in self._ended():
                if name not in names:
                    raise self._gone(name)
            progress = "; ".join(
                f"{name}: {self._tags[name].milestone}" for name in names if self._tags[name].milestone
            )
            self._display.waiting(time.monotonic() - began, progress)
        self._display.close()
        for wait in waits:
            if self._stops == 0 and wait.failure is not None:
                raise wait.failure

    def _watch(self) -> None:
        """Until somebody asks for the end. Raises ServerError when the router ends, or too few servers are left."""
        missed: list[str] = []
        while self._stops == 0:
            time.sleep(_TICK_S)
            for name in self._ended():
                if name in missed or self._stops:
                    continue
                missed.append(name)
                gone = self._gone(name)
                if name == ROUTER or not self._go_on or not self._can_serve():
                    raise gone
                left = [other for other in self._roles if other not in missed]
                self._report(gone, left)

    def _report(self, gone: ServerError, left: Sequence[str]) -> None:
        """Says that a server has ended, why, and who is left, while the others go on."""
        with self._lock:
            write(finding_lines(list(gone.findings)), sys.stderr)
            self._display.note(f"requests go on through {', '.join(left)}")

    def _ended(self) -> list[str]:
        """Those that were started and have ended."""
        return [name for name, server in self._servers.items() if name in self._started and server.pid is None]

    def _can_serve(self) -> bool:
        """Whether of every role one is alive."""
        alive = {self._roles[name] for name in self._roles if self._servers[name].pid is not None}
        return alive == set(self._roles.values())

    def _gone(self, name: str) -> ServerError:
        """The error for one that has ended without being asked."""
        server = self._servers[name]
        code = server.wait()
        if server.lost_port:
            return ServerError(*(_named(name, finding) for finding in server.port_lost("it was stopped").findings))
        return server.failed("TOP022" if name == ROUTER else "TOP021", f"{name} ended: {describe_exit(code)}", code)


class _Wait(threading.Thread):
    """Waits for one server to be ready, beside the others."""

    def __init__(self, name: str, server: LocalServer) -> None:
        super().__init__(name=f"ready-{name}", daemon=True)
        self.failure: ServerError | None = None
        self._server, self._called = server, name
        self.start()

    def run(self) -> None:
        try:
            self._server.wait_ready()
        except ServerError as failure:
            self.failure = ServerError(*(_named(self._called, finding) for finding in failure.findings))


def _named(name: str, finding: Finding) -> Finding:
    from dataclasses import replace

    return replace(finding, message=f"{name}: {finding.message}")
