"""Several servers and their router as if they were one server: for a program that starts, asks and stops one."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sglang_hydra.run.launch.display import Display
from sglang_hydra.run.launch.local import Launch, LocalServer
from sglang_hydra.run.topology.serve import wait_until_all_are_known
from sglang_hydra.run.topology.server_group import Member, Tagged
from sglang_hydra.text.errors import ServerError


class BehindRouter(LocalServer):
    """The router, which is what clients talk to. Its servers start before it and end after it; the end of one of them
    is the end of all."""

    def __init__(self, members: Sequence[Member], router: Launch, display: Display) -> None:
        super().__init__(router, display)
        lock = threading.Lock()
        self.servers: Mapping[str, LocalServer] = {
            member.name: LocalServer(member.launch, Tagged(display, member.name, lock)) for member in members
        }
        self._is_up = False

    def start(self) -> None:
        """Starts the servers; the router follows in ``wait_ready``. Raises MachineError as for one server."""
        for server in self.servers.values():
            server.start()

    def wait_ready(self) -> float | None:
        """Waits for every server, then starts the router and waits until it knows them. Raises ServerError for the
        first that fails."""
        began = time.monotonic()
        for name, server in self.servers.items():
            try:
                if server.wait_ready() is None:
                    return None
            except ServerError as failure:
                self.failure = server.failure
                findings = (replace(finding, message=f"{name}: {finding.message}") for finding in failure.findings)
                raise ServerError(*findings) from None
        super().start()
        if super().wait_ready() is None:
            return None
        wait_until_all_are_known(self.launch, len(self.servers))
        self._is_up = True
        return time.monotonic() - began

    @property
    def pid(self) -> int | None:
        """The router's; None once it or one of the servers has ended."""
        own = super().pid
        return None if self._is_up and self._ended() is not None else own

    def wait(self) -> int:
        """The exit code of the server that has ended, else of the router once it ends."""
        ended = self._ended() if self._is_up else None
        return super().wait() if ended is None else ended[1].wait()

    def failed(
        self, id: str, what: str, exit_code: int | None = None, advice: str | None = None, kind: str | None = None
    ) -> ServerError:
        """The error for the server that has ended, else for the router."""
        ended = self._ended() if self._is_up else None
        if ended is None:
            return super().failed(id, what, exit_code, advice, kind)
        error = ended[1].failed(id, f"{ended[0]}: {what}", exit_code, advice, kind)
        self.failure = ended[1].failure
        return error

    def request_stop(self) -> None:
        super().request_stop()
        for server in self.servers.values():
            server.request_stop()

    def stop(self) -> None:
        """Ends the router and then the servers, all at a time."""
        self._is_up = False
        super().stop()
        for server in self.servers.values():
            if server.pid is not None and not server.stop_requested:
                server.request_stop()
        for server in self.servers.values():
            server.stop()

    def _ended(self) -> tuple[str, LocalServer] | None:
        return next((item for item in self.servers.items() if item[1].pid is None), None)
