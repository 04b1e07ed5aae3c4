"""Shows the progress of a sweep: a live table on a terminal, a line for each event elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from sglang_hydra.arguments.secrets import hidden_in
from sglang_hydra.measure.periodic import Repeating
from sglang_hydra.measure.sweep.claims import Claims, Holder
from sglang_hydra.measure.sweep.job import Watcher
from sglang_hydra.measure.sweep.points import Point, Sweep
from sglang_hydra.measure.sweep.search import search_of
from sglang_hydra.measure.sweep.store import DONE, FAILED, State, Store, answer_of
from sglang_hydra.run.launch.display import harmless
from sglang_hydra.text.errors import SglangHydraError
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.screen import Line, columns, print_json, text, write
from sglang_hydra.text.words import plural, program, short

_POLL_S = 2.0
_RUNNING_SHOWN = 8


class Progress(NamedTuple):
    """Counts of points; ``best`` is the words and the output tokens/s of the best valid point."""

    total: int
    done: int
    invalid: int
    failed: int
    best: tuple[str, float] | None

    @property
    def open(self) -> int:
        return self.total - self.done - self.failed

    @property
    def ended(self) -> int:
        return self.done + self.failed


class News(NamedTuple):
    """A change of a point since the last look: its state, and its numbers or the reason."""

    point: Point
    state: str
    detail: str


class Tally:
    """Counts points from the folder, which has every runner's results. Reads a finished point only once."""

    def __init__(self, sweep: Sweep, store: Store) -> None:
        self._settings, self._store = sweep.settings, store
        self._left = {point.point_id: point for point in sweep.points()}
        self._total = len(self._left)
        self._done = self._invalid = 0
        self._best: tuple[str, float] | None = None
        self._failures: JsonDict = {}
        self._steps: set[str] = set()
        self._news: list[News] = []

    def count(self) -> Progress:
        """Counts the points in their current states."""
        failed = 0
        for point in tuple(self._left.values()):
            search = search_of(self._settings, point)
            if search is not None:
                self._note_steps(point, search.id)
            state = search.state(self._store) if search else self._store.standing(point.point_id)
            failed += state.state == FAILED
            if self._note(point, state) and state.record is not None:
                del self._left[point.point_id]
                self._take(point, state.record)
        return Progress(self._total, self._done, self._invalid, failed, self._best)

    def news(self) -> list[News]:
        """Returns the changes of the last counts, each once."""
        found, self._news = self._news, []
        return found

    def _take(self, point: Point, record: JsonObject) -> None:
        self._done += 1
        self._invalid += record["state"] != "valid"
        reached = record["measures"].get("output_throughput")
        if counts(record) and reached is not None and (self._best is None or reached > self._best[1]):
            self._best = (named(record.get("words", point.words)), reached)

    def _note_steps(self, searched: Point, search_id: str) -> None:
        """Reports the steps of a search as they come; they are not planned points and do not count."""
        record = self._store.read_search(search_id)
        for id, step in (record["steps"] if record else {}).items():
            point = replace(searched, point_id=id, words=tuple(step["words"]))
            if id not in self._steps and self._note(point, self._store.standing(id)):
                self._steps.add(id)

    def _note(self, point: Point, state: State) -> bool:
        """Reports a result or a new failure. Returns whether the point has a result."""
        record, id = state.record, point.point_id
        if record is not None and state.state == DONE:
            detail = "; ".join(record.get("reasons", ())) or numbers(record)
            self._news.append(News(point, record["state"], detail))
            return True
        if record is not None and self._failures.get(id) != record:
            self._failures[id] = record
            detail = "; ".join(finding["message"] for finding in record.get("findings", ())[:1])
            again = "" if record["final"] else " (it is tried again)"
            self._news.append(News(point, FAILED, f"{record['kind']}: {detail}{again}"))
        return False


def numbers(record: JsonObject) -> str:
    """Formats the numbers of a result in a line: tokens/s, median and p99 latencies in ms."""
    measures = record["measures"]
    parts = []
    if measures.get("output_throughput") is not None:
        parts.append(f"{measures['output_throughput']:.1f} output tokens/s")
    spreads = {"TTFT": measures.get("ttft_ms") or {}, "TPOT": measures.get("tpot_ms") or {}}
    known = ((words, of) for words, of in spreads.items() if of.get("p50") is not None)
    return ", ".join([*parts, *(f"{words} {of['p50']:.1f} ms (p99 {of['p99']:.1f})" for words, of in known)])


class Printed(Watcher):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def server(self, server_id: str, detail: str) -> None:
        self.write(f"server {server_id}: {detail}")

    def point(self, point: Point, state: str, detail: str) -> None:
        if state != "running":
            self.write(f"{state:8}{named(point.words)}{f': {detail}' if detail else ''}")

    def write(self, line: str) -> None:
        """Writes a line; ignores a failed write."""
        with contextlib.suppress(OSError, ValueError):
            print(harmless(line), file=self._stream, flush=True)


class LiveScreen(Watcher):
    """Shows counts, remaining time and the best point below the event lines; only lines without a terminal."""

    def __init__(self, tally: Tally, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live: Any = None
        self._lines = Printed(self._stream)
        self._tally = tally
        self._progress = self._tally.count()
        self._tally.news()
        self._before = self._progress.ended
        self._began = time.monotonic()
        self._now: Sequence[str] = ()

    def __enter__(self) -> LiveScreen:
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False)
            self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *reason: object) -> None:
        if self._live is not None:
            self._live.stop()

    def server(self, server_id: str, detail: str) -> None:
        now = (f"server {server_id}: {detail}",)
        if self._live is None and now != self._now:
            self._lines.server(server_id, detail)
        self._now = now

    def point(self, point: Point, state: str, detail: str) -> None:
        if state == "running":
            self._now = (f"running {named(point.words)}",)
            return
        self._progress = self._tally.count()
        self._tally.news()
        self._report(point, state, detail)

    def _report(self, point: Point, state: str, detail: str) -> None:
        counted, more = f"{self._progress.ended}/{self._progress.total}", f": {detail}" if detail else ""
        line = f"{counted} {state} {named(point.words)}{more}"
        if self._live is None:
            self._lines.write(line)
        else:
            from rich.text import Text

            style = {"valid": "green", "invalid": "yellow"}.get(state, "red")
            self._live.console.print(Text(harmless(line), style))

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        shown, taken = self._progress, self._progress.ended - self._before
        elapsed = time.monotonic() - self._began
        eta = f"{elapsed / taken * shown.open:.0f} s to go" if taken and shown.open else ""
        counts = f"{shown.done} of {shown.total} done, {shown.invalid} invalid, {shown.failed} failed"
        table = Table.grid()
        table.add_row(Text.assemble((counts, "bold"), f"  {elapsed:.0f} s  {eta}"))
        for line in self._now[:_RUNNING_SHOWN]:
            table.add_row(Text(harmless(line), "dim"))
        if shown.best is not None:
            best = f"best so far: {shown.best[1]:.1f} output tokens/s, {shown.best[0]}"
            table.add_row(Text(harmless(best), "green"))
        return table


class FolderScreen(LiveScreen):
    """A live screen for jobs that run elsewhere: it reads their state from the folder."""

    def __init__(self, sweep: Sweep, store: Store, stream: TextIO | None = None, poll_s: float = _POLL_S) -> None:
        super().__init__(Tally(sweep, store), stream)
        self._claims = Claims(store.folder / "claims")
        self._servers = [group.server_id for group in sweep.groups]
        self._watching = Repeating(self._look, poll_s, "sweep-watch")

    def __enter__(self) -> FolderScreen:
        super().__enter__()
        self._watching.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._watching.end()
        self._look()
        super().__exit__()

    def _look(self) -> None:
        with contextlib.suppress(OSError, SglangHydraError):  # the end of the sweep reports unreadable files
            self._progress = self._tally.count()
        for news in self._tally.news():
            self._report(*news)
        before = self._now
        self._now = [f"server {id}: {holder.runner} works on it" for id, holder in holders(self._claims, self._servers)]
        if self._live is None:
            for line in self._now:
                if line not in before:
                    self._lines.write(line)


def counts(result: JsonObject) -> bool:
    """Returns whether a point can be the best: it is valid, and met its SLO if it had one."""
    return result["state"] == "valid" and result["measures"].get("slo_met") is not False


def named(words: Iterable[str]) -> str:
    """Names a point by its overrides, or ``the point`` if nothing varies."""
    return " ".join(words) or "the point"


def holders(claims: Claims, server_ids: Iterable[str]) -> Iterator[tuple[str, Holder]]:
    """Yields the servers that a runner holds, with that runner."""
    for server_id in server_ids:
        if (holder := claims.holder(f"servers/{server_id}")) is not None:
            yield server_id, holder


STATUS_SCHEMA = "sglang_hydra.sweep_status/1"
_SHOWN = 20


def status(folder: str, *, as_json: bool = False) -> int:
    """Shows the state of a sweep, from any terminal that can read its folder."""
    record = status_record(Path(folder).expanduser())
    if as_json:
        print_json(record)
    else:
        write(_lines(record))
    return 0


def status_record(folder: Path) -> JsonDict:
    """Returns the counts, the runners, the best valid point that met its SLO, the searches' answers, all failures.

    Raises ConfigError for a folder without a sweep."""
    store = Store(folder)
    record = store.read_sweep()
    states = dict.fromkeys(("valid", "invalid", FAILED, "open"), 0)
    best: JsonDict | None = None
    failures = []
    open_on: Counter[str] = Counter()
    for point_id, point in record["points"].items():
        state = store.standing(point_id)
        known = {"point_id": point_id, "words": point["words"]}
        states[state.outcome] += 1
        if state.state == DONE and state.record is not None:
            reached = state.record["measures"].get("output_throughput")
            if counts(state.record) and reached and (not best or reached > best["output_throughput"]):
                best = {**known, "output_throughput": reached}
        elif state.state == FAILED and state.record is not None:
            message = "; ".join(finding["message"] for finding in state.record.get("findings", ()))
            failures.append({**known, "kind": state.record["kind"], "message": message})
        else:
            open_on[point["server_id"]] += 1
    running = [
        {"server_id": server_id, "runner": holder.runner, "alive": holder.alive, "open": open_on[server_id]}
        for server_id, holder in holders(Claims(folder / "claims"), record["servers"])
    ]
    status = {
        "schema": STATUS_SCHEMA,
        "folder": str(folder),
        "words": list(record["words"]),
        "total": len(record["points"]),
        "done": states["valid"] + states["invalid"],
        **states,
        "running": running,
        "best": best,
        "searches": store.search_answers(),
        "failures": failures,
        "damaged": [finding.message for finding in store.damaged.values()],
    }
    return {key: hidden_in(value) for key, value in status.items()}


def _lines(record: JsonObject) -> list[Line]:
    done = f"{record['done']} of {plural(record['total'], 'point')} done"
    rest = ", ".join(f"{record[name]} {name}" for name in ("invalid", "failed", "open") if record[name])
    lines: list[Line] = [[text(record["folder"], "bold"), text(f": {done}{f' ({rest})' if rest else ''}")]]
    for item in record["running"]:
        alive = {True: "runs", False: "was killed", None: "runs elsewhere, or was killed there"}[item["alive"]]
        line = f"  server {item['server_id']}: {item['runner']} {alive}, {plural(item['open'], 'point')} to go"
        lines.append([text(line, "yellow" if item["alive"] is False else "")])
    if record["best"]:
        best = record["best"]
        line = f"  best so far: {best['output_throughput']:.1f} output tokens/s, {named(best['words'])}"
        lines.append([text(line, "green")])
    lines += [[text(f"  {answer_of(item)}", "green")] for item in record["searches"]]
    failed = ((item["kind"], short(named(item["words"]), 60), short(item["message"])) for item in record["failures"])
    lines += columns([[text(""), text(kind, "red"), *map(text, rest)] for kind, *rest in islice(failed, _SHOWN)])
    lines += [[text(f"  damaged: {message}", "yellow")] for message in record["damaged"]]
    if len(record["failures"]) > _SHOWN:
        lines.append([text(f"  and {len(record['failures']) - _SHOWN} more that failed", "dim")])
    hints = []
    if record["open"] and not any(item["alive"] for item in record["running"]):
        hints.append(f"resume {record['folder']} takes what is open")
    elif not record["open"] and record["done"]:
        hints.append(f"report {record['folder']} shows and compares them")
    if record["failed"] and not record["open"]:
        hints.append(f"resume {record['folder']} sweep.rerun=[failed] takes what failed again")
    return [*lines, *([text(f"  {program()} {hint}", "dim")] for hint in hints)]
