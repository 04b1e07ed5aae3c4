"""Runs several servers and a router as one: starts all or none, and stops the router first."""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sglang_hydra.run.launch.display import Display
from sglang_hydra.run.launch.local import Launch, LocalServer, Outcome
from sglang_hydra.run.launch.port import client_host
from sglang_hydra.run.launch.signals import describe_exit
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ServerError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import write

_TICK_S = 0.1
ROUTER = "router"


class Member(NamedTuple):
    """One server of a group. The group can serve while one server of every ``role`` is alive."""

    name: str
    role: str
    launch: Launch


class Tagged(Display):
    """A shared display: each line begins with the name of its server."""

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


class ServerGroup(LocalServer):
    """The servers of a topology and their router, which clients talk to. All start or none, the router last; the router
    also stops first, so that no request meets a stopped server.

    It acts as one server for the program that runs it. The end of any server ends the group; with ``go_on``, the end of
    the last one of a role."""

    def __init__(self, members: Sequence[Member], router: Launch, display: Display, *, go_on: bool = False) -> None:
        self._lock = threading.Lock()
        self._tags = {name: Tagged(display, name, self._lock) for name in (*(each.name for each in members), ROUTER)}
        super().__init__(router, self._tags[ROUTER])
        self.servers: Mapping[str, LocalServer] = {
            member.name: LocalServer(member.launch, self._tags[member.name]) for member in members
        }
        self._roles = {member.name: member.role for member in members}
        self._of_all, self._go_on = display, go_on
        self._is_up = False

    def start(self) -> None:
        """Starts the servers; ``wait_ready`` starts the router. Raises MachineError as for one server."""
        for server in self.servers.values():
            if not self._stop_requested:
                server.start()

    def wait_ready(self) -> float | None:
        """Waits for every server, then starts the router and waits until it knows them. Raises ServerError for the
        first one that fails."""
        began = time.monotonic()
        self._wait_for({name: server.wait_ready for name, server in self.servers.items()})
        if self._stop_requested:
            return None
        super().start()
        self._wait_for({ROUTER: super().wait_ready})
        if self._stop_requested:
            return None
        wait_until_all_are_known(self.launch, len(self.servers))
        self._is_up = True
        return time.monotonic() - began

    @property
    def pid(self) -> int | None:
        """Returns the router's process id; None after the router or a server has ended."""
        return None if self._is_up and self._ended() else super().pid

    def wait(self) -> int:
        """Returns the exit code of the server that has ended, or else waits for the router's."""
        ended = self._ended() if self._is_up else []
        return super().wait() if not ended or ended[0] == ROUTER else self.servers[ended[0]].wait()

    def failed(
        self, id: str, what: str, exit_code: int | None = None, advice: str | None = None, kind: str | None = None
    ) -> ServerError:
        """Returns the error for the server that has ended, else for the router."""
        ended = self._ended() if self._is_up else []
        if not ended or ended[0] == ROUTER:
            return super().failed(id, what, exit_code, advice, kind)
        server = self.servers[ended[0]]
        error = server.failed(id, f"{ended[0]}: {what}", exit_code, advice, kind)
        self.failure = server.failure
        return error

    def request_stop(self) -> None:
        """Asks the router to end and returns at once; ``stop`` ends the servers. A second request kills all."""
        again = self._stop_requested
        super().request_stop()
        if again:
            for server in self.servers.values():
                for _ in range(2):
                    server.request_stop()

    def stop(self) -> None:
        """Stops the router, then all servers in parallel."""
        self._is_up = False
        self._of_all.close()
        super().stop()
        for server in self.servers.values():
            if server.pid is not None and not server.stop_requested:
                server.request_stop()
        for server in self.servers.values():
            server.stop()

    def _wait_for(self, each: Mapping[str, Callable[[], object]]) -> None:
        """Waits until all these servers are ready, or until a stop request. Raises ServerError for the first failure,
        of these or of a server that already runs."""
        began = time.monotonic()
        waits = [_Wait(name, ready) for name, ready in each.items()]
        over = False
        while not (over or self._stop_requested):
            time.sleep(_TICK_S)
            over = not any(wait.is_alive() for wait in waits)
            for wait in waits:
                if wait.failure is not None and not self._stop_requested:
                    self.failure = self._one(wait.called).failure
                    raise of_server(wait.called, wait.failure)
            for name in self._ended():
                if name not in each:
                    raise self._gone(name)
            milestones = {name: self._tags[name].milestone for name in each}
            progress = "; ".join(f"{name}: {milestone}" for name, milestone in milestones.items() if milestone)
            self._of_all.waiting(time.monotonic() - began, progress)
        self._of_all.close()

    def until_end(self) -> None:
        """Waits for a stop request. Raises ServerError when the router ends, or when too few servers are left."""
        missed: list[str] = []
        while not self._stop_requested:
            time.sleep(_TICK_S)
            for name in self._ended():
                if name in missed or self._stop_requested:
                    continue
                missed.append(name)
                gone = self._gone(name)
                alive = {self._roles[other] for other, server in self.servers.items() if server.pid is not None}
                if name == ROUTER or not self._go_on or alive != set(self._roles.values()):
                    raise gone
                left = ", ".join(other for other in self.servers if other not in missed)
                with self._lock:
                    write(finding_lines(list(gone.findings)), sys.stderr)
                    self._of_all.note(f"requests go on through {left}")

    def _ended(self) -> list[str]:
        router = [ROUTER] if self._process is not None and super().pid is None else []
        return [*(name for name, server in self.servers.items() if server.pid is None), *router]

    def _one(self, name: str) -> LocalServer:
        return self if name == ROUTER else self.servers[name]

    def _gone(self, name: str) -> ServerError:
        self._is_up = False  # later questions to the router are about the router alone
        server = self._one(name)
        code = server.wait()
        if server.lost_port:
            return of_server(name, server.port_lost("it was stopped"))
        return server.failed("TOP022" if name == ROUTER else "TOP021", f"{name} ended: {describe_exit(code)}", code)

    def outcome(self, exit_code: int, findings: Sequence[Finding] = ()) -> Outcome:
        """Returns the outcome, with findings about all logs."""
        every = [*self.servers.values(), self]
        about_logs = filter(None, (server.log_finding for server in every))
        kinds = [server.failure.kind for server in every if server.failure is not None]
        return Outcome(exit_code, (*findings, *about_logs), kinds[-1] if kinds and findings else None)


class _Wait(threading.Thread):
    def __init__(self, called: str, ready: Callable[[], object]) -> None:
        super().__init__(name=f"ready-{called}", daemon=True)
        self.failure: ServerError | None = None
        self.called, self._ready = called, ready
        self.start()

    def run(self) -> None:
        try:
            self._ready()
        except ServerError as failure:
            self.failure = failure


def of_server(name: str, failure: ServerError) -> ServerError:
    """Returns the error with the name of its server."""
    return ServerError(*(replace(finding, message=f"{name}: {finding.message}") for finding in failure.findings))


def wait_until_all_are_known(router: Launch, servers: int) -> None:
    """Waits until the router knows all workers: later releases find them in the background, after readiness."""
    deadline = time.monotonic() + router.ready_timeout_s
    while time.monotonic() < deadline:
        known = _workers_known(router)
        if known is None or known >= servers:
            return
        time.sleep(0.1)


def _workers_known(router: Launch) -> int | None:
    """Returns the number of servers that the router knows; None if it does not say."""
    connection = http.client.HTTPConnection(client_host(router.host), router.port, timeout=5)
    try:
        connection.request("GET", "/readiness")
        answer = read_json(connection.getresponse().read(), "record")
        if "healthy_workers" in answer:
            return int(answer["healthy_workers"])
        return sum(int(answer[role]["healthy"]) for role in ("prefill", "decode"))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()
