"""How a sweep goes: a live table where there is a terminal, a line for each event elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, TextIO

from sglang_hydra.launch.display import harmless
from sglang_hydra.sweep.points import Point, Sweep
from sglang_hydra.sweep.search import search_of
from sglang_hydra.sweep.store import DONE, FAILED, Store

_POLL_S = 2.0


class Progress(NamedTuple):
    """Counts of points; ``best`` is the words and the throughput (output tokens a second) of the best valid one."""

    total: int
    done: int
    invalid: int
    failed: int
    best: tuple[str, float] | None

    @property
    def open(self) -> int:
        return self.total - self.done - self.failed


class Tally:
    """Counts from the folder, which has every runner's results. What is done is read once."""

    def __init__(self, sweep: Sweep, store: Store) -> None:
        self._settings, self._store = sweep.settings, store
        self._left = list(sweep.points())
        self._total = len(self._left)
        self._done = self._invalid = 0
        self._best: tuple[str, float] | None = None

    def count(self) -> Progress:
        """How it is now."""
        left, failed = [], 0
        for point in self._left:
            search = search_of(self._settings, point)
            state = search.state(self._store) if search else self._store.state(point.point_id)
            if state.state == DONE and state.record is not None:
                self._take(point, state.record)
            else:
                left.append(point)
                failed += state.state == FAILED
        self._left = left
        return Progress(self._total, self._done, self._invalid, failed, self._best)

    def _take(self, point: Point, record: Mapping[str, Any]) -> None:
        self._done += 1
        self._invalid += record["state"] != "valid"
        reached = record["measures"].get("output_throughput")
        if record["state"] == "valid" and reached is not None and (self._best is None or reached > self._best[1]):
            self._best = (" ".join(record.get("words", point.words)), reached)


class Printed:
    """A line for each event."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def server(self, server_id: str, said: str) -> None:
        self._write(f"server {server_id}: {said}")

    def point(self, point: Point, state: str, said: str) -> None:
        if state != "running":
            self._write(f"{state:8}{' '.join(point.words)}{f': {said}' if said else ''}")

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(harmless(line), file=self._stream, flush=True)


class LiveScreen:
    """Counts, time to go and the best so far below the lines of events; lines alone where there is no terminal."""

    def __init__(self, sweep: Sweep, store: Store, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live: Any = None
        self._lines = Printed(self._stream)
        self._tally = Tally(sweep, store)
        self._progress = self._tally.count()
        self._before = self._progress.done + self._progress.failed
        self._began = time.monotonic()
        self._now = ""

    def __enter__(self) -> LiveScreen:
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False)
            self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def server(self, server_id: str, said: str) -> None:
        self._now = f"server {server_id}: {said}"
        if self._live is None:
            self._lines.server(server_id, said)

    def point(self, point: Point, state: str, said: str) -> None:
        if state == "running":
            self._now = f"running {' '.join(point.words)}"
            return
        self._progress = self._tally.count()
        line = f"{self._progress.done + self._progress.failed}/{self._progress.total} {state} {' '.join(point.words)}"
        if self._live is None:
            self._lines._write(f"{line}{f': {said}' if said else ''}")
        else:
            from rich.text import Text

            style = {"valid": "green", "invalid": "yellow"}.get(state, "red")
            self._live.console.print(Text(harmless(f"{line}{f': {said}' if said else ''}"), style))

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        shown, taken = self._progress, self._progress.done + self._progress.failed - self._before
        elapsed = time.monotonic() - self._began
        eta = f"{elapsed / taken * shown.open:.0f} s to go" if taken and shown.open else ""
        counts = f"{shown.done} of {shown.total} done, {shown.invalid} invalid, {shown.failed} failed"
        table = Table.grid(padding=(0, 2))
        table.add_row(Text(counts, "bold"), Text(f"{elapsed:.0f} s"), Text(eta))
        table.add_row(Text(harmless(self._now), "dim"))
        if shown.best is not None:
            table.add_row(Text(harmless(f"best so far: {shown.best[1]:.1f} output tokens/s, {shown.best[0]}"), "green"))
        return table


@contextlib.contextmanager
def watching(sweep: Sweep, store: Store, stream: TextIO | None = None) -> Iterator[None]:
    """While jobs run elsewhere: a line whenever the folder holds more results."""
    over = threading.Event()
    lines = Printed(stream or sys.stderr)

    def look() -> None:
        tally = Tally(sweep, store)
        seen = tally.count()
        while not over.wait(_POLL_S):
            now = tally.count()
            if now != seen:
                best = f"; best so far {now.best[1]:.1f} output tokens/s, {now.best[0]}" if now.best else ""
                lines._write(f"{now.done} of {now.total} done, {now.invalid} invalid, {now.failed} failed{best}")
                seen = now

    thread = threading.Thread(target=look, name="sweep-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
