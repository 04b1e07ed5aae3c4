"""Program that stays with a detached server: bounds its log and keeps its file in the state folder.

    python supervisor.py < ORDERS

The orders, in the form of ``child_rank.py``, are the launch, including the API key, and the content of the server's
file. The program writes its events as lines of JSON to standard output while somebody reads them. Until ``keep``
arrives on standard input, the server ends with the process that gave the orders; afterwards it runs until it is
stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from sglang_hydra.text.findings import Finding

if __name__ == "__main__":
    # Run by its path: this folder must not be an import path, and the package may be in no folder that Python knows.
    _HERE, _ROOT = str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[3])
    sys.path[:] = [place for place in sys.path if os.path.realpath(place) != _HERE]
    if _ROOT not in map(os.path.realpath, sys.path):
        sys.path.insert(0, _ROOT)

from sglang_hydra.run.launch.child_rank import read_orders
from sglang_hydra.run.launch.display import Display
from sglang_hydra.run.launch.processes import name_of
from sglang_hydra.run.launch.servers import FAILED, READY, ServerRecord, claim, forget, update
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from sglang_hydra.run.launch.local import Launch, LocalServer

OWN_LOG = "supervisor.log"
"""The file in the run folder for this program's own errors."""

KEEP = b"keep"
"""The word that makes the server stay."""


class Events(Display):
    """A display that writes lines of JSON to the process that started us, until that stops reading.

    Calls ``reached`` with each new milestone."""

    def __init__(self, stream: int) -> None:
        self._stream: int | None = stream
        self._lock = threading.Lock()
        self._milestone = ""
        self.reached: Callable[[str], None] = lambda milestone: None

    def line(self, stream: str, text: str) -> None:
        self.emit("line", stream=stream, text=text)

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        if milestone != self._milestone:
            self._milestone = milestone
            self.reached(milestone)
        self.emit("waiting", elapsed_s=elapsed_s, milestone=milestone)

    def note(self, text: str) -> None:
        self.emit("note", text=text)

    def emit(self, event: str, **fields: object) -> None:
        if self._stream is None:
            return
        content = json.dumps({"event": event, **fields}).encode() + b"\n"
        with self._lock:
            while self._stream is not None and content:
                try:
                    content = content[os.write(self._stream, content) :]
                except OSError:
                    self._stream = None

    def end(self, exit_code: int, findings: Sequence[Finding], server_exit: int | None = None) -> None:
        records = [finding.to_json() for finding in findings]
        self.emit("ended", exit_code=exit_code, server_exit=server_exit, findings=records)

    def hush(self) -> None:
        """Stops writing events, and releases the stream."""
        with self._lock:
            if self._stream is not None:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, self._stream)
                os.close(nothing)
            self._stream = None


def supervise(launch: Launch, record: ServerRecord, events: Events, *, comparing: bool = False) -> int:
    """Runs the server until its end; its file exists as long, and longer after a failure. Returns the exit code.

    With ``comparing`` the server is compared with its plan before it counts as ready, because nobody else waits for
    that. A server that is not the planned one has failed."""
    from sglang_hydra.run.launch.listening import UNSEEN
    from sglang_hydra.run.launch.local import serve

    claimed = False

    def ready(server: LocalServer, seconds: float) -> None:
        nonlocal record
        hidden = server.owner is not None and server.owner.whose == UNSEEN
        found = _not_compared(server, Path(record.run_folder)) if comparing or hidden else ()
        record = replace(record, state=READY, milestone="", ready_at=time.time(), findings=found)
        update(record)
        events.emit("ready", seconds=seconds)

    try:
        record = claim(record)
        claimed = True
        events.emit("claimed", name=record.name)
        events.reached = lambda milestone: update(replace(record, milestone=milestone))
        outcome = serve(launch, events, on_ready=ready, loud=False)
    except BaseException as failure:
        if claimed:
            forget(record)
        if not isinstance(failure, MachineError):
            raise
        events.end(failure.exit_code, failure.findings)
        return failure.exit_code
    if outcome.exit_code in (0, INTERRUPTED):
        forget(record)
    else:
        # Its state can still be queried.
        code, kind, findings = outcome.exit_code, outcome.kind, outcome.findings
        update(replace(record, state=FAILED, ended_at=time.time(), exit_code=code, kind=kind, findings=findings))
    events.end(outcome.exit_code, outcome.findings, outcome.server_exit)
    return outcome.exit_code


def _not_compared(server: LocalServer, folder: Path) -> tuple[Finding, ...]:
    """Writes ``actual.json`` to the run folder; returns a finding if that failed. Raises ServerError for a server that
    is not the planned one."""
    from sglang_hydra.run.launch.server_info import compared_with_written_plan

    compared = compared_with_written_plan(server.launch, folder, server)
    return (compared,) if isinstance(compared, Finding) else ()


def _wait_for_keep(events: Events) -> None:
    """Waits for ``keep``. Stops the server if the process that gave the orders goes away before."""
    word = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(0, 64):
            word += chunk
            if KEEP in word:
                events.emit("kept")
                events.hush()
                return
    os.kill(os.getpid(), signal.SIGTERM)


def _asked_to_end(number: int, frame: FrameType | None) -> NoReturn:
    """Ends this program before it has a server to stop."""
    raise SystemExit(INTERRUPTED)


def main() -> int:
    orders = read_orders(0)  # what follows belongs to another reader
    own = name_of(os.getpid())
    assert own is not None
    record = ServerRecord(process=own, started_at=time.time(), **orders["record"])
    launch, events = _launch_of(orders["launch"]), Events(1)
    # The end of the session or terminal that started us must not end the server.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _asked_to_end)
    threading.Thread(target=_wait_for_keep, args=(events,), name="keep", daemon=True).start()
    try:
        return supervise(launch, record, events, comparing=bool(orders.get("comparing")))
    finally:
        log = Path(record.run_folder) / OWN_LOG
        with contextlib.suppress(OSError):
            if log.stat().st_size == 0:
                log.unlink()


def _launch_of(content: dict[str, Any]) -> Launch:
    from sglang_hydra.planning.engines.base import Command
    from sglang_hydra.run.launch.local import Launch

    log = content.pop("log_file")
    return Launch(command=Command(**content.pop("command")), log_file=Path(log) if log else None, **content)


if __name__ == "__main__":
    sys.exit(main())
