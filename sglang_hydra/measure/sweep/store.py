"""Stores a sweep's results in a folder that any number of runners, and the report, read and write.

    multirun/<sweep>/
      sweep.json                      the plan: its points, its servers, the typed words
      servers/<server_id>/            plan.json, server.log
      points/<point_id>/result.json   the measurement; written once, never replaced
      points/<point_id>/failed/N.json attempts without a measurement: failure class and end of the log
      points/<point_id>/raw/          single requests
      points/<point_id>/superseded/N.json  results that were measured again on request
      searches/<id>.json              the steps of a search, which are normal points
      claims/                         who works on what
      jobs/                           files of a Hydra launcher's jobs
      **/*.damaged-N                  unreadable files, set aside and replaced

Ids are the only keys, never the spelling of an override."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.measure.sweep.files import publish, read_json, write_below
from sglang_hydra.measure.sweep.points import Point, Sweep
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.record_shape import misfit
from sglang_hydra.text.words import is_digits

SWEEP_SCHEMA = "sglang_hydra.sweep/1"
RESULT_SCHEMA = "sglang_hydra.result/1"
FAILURE_SCHEMA = "sglang_hydra.failure/1"
SEARCH_SCHEMA = "sglang_hydra.search/1"

DONE, FAILED, OPEN = "done", "failed", "open"


_OURS = ("claims", "servers", "points", "searches", "jobs", "report.html", "points.csv")
"""The entries of a sweep's folder besides sweep.json."""


class NoSweep(ConfigError):
    """A folder that is no sweep's."""


class DamagedError(ConfigError):
    """An unreadable record. A record of another release is a plain ConfigError."""


class State(NamedTuple):
    """The state of a point: done (it has a result, valid or not), failed (its last failure was final), or open.
    ``record`` is that result or failure, or the last failure of an open point."""

    state: str
    record: JsonObject | None = None

    @property
    def outcome(self) -> str:
        """Returns the state, or the result's own for a finished point: valid or invalid."""
        return str(self.record["state"]) if self.state == DONE and self.record else self.state


def answer_of(found: JsonObject) -> str:
    """Renders one of ``search_answers`` in words."""
    what = f"the {found['search']} search of {found['key']}"
    return f"{what} found {' '.join(found['words'])}" if found["words"] else f"{what} found no good point"


class Store:
    """One sweep's folder. Raises ConfigError for a folder with other content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: dict[Path, Finding] = {}
        """The unreadable files found so far, which count as missing."""

    def check(self) -> None:
        """Raises ConfigError for a folder with other content, and for an unreadable sweep."""
        if (self.folder / "sweep.json").exists():
            self._planned()
        elif self.folder.exists() and not (self.folder.is_dir() and all(map(_is_begun, os.listdir(self.folder)))):
            message = f"{self.folder} is not empty and holds no sweep"
            raise NoSweep(Finding("error", "STO001", message, ("sweep.folder",), "sweep.folder=multirun/NAME"))

    def begin(self, sweep: Sweep) -> None:
        """Makes the folder, or adds to an existing one: points of earlier commands stay.

        Raises ConfigError for a folder that is not a sweep's, OSError if it cannot be written."""
        self.check()
        file = self.folder / "sweep.json"
        before = self._planned() if file.exists() else {"points": self._points_there()}
        record = sweep_record(sweep)
        for part in ("points", "servers"):
            record[part] = {**before.get(part, {}), **record[part]}
        if record != before or not file.exists():
            write_below(file, _dumped(record))

    def read_sweep(self) -> JsonDict:
        """Reads the plan, with the steps of a search in place of its point. Raises ConfigError for a missing
        sweep.json, one of another release, and a broken one."""
        record = self._planned()
        points = dict(record["points"])
        for search in self._searches():
            points.pop(search["planned"], None)
            points.update(search["steps"])
        return {**record, "points": points}

    def search_answers(self) -> list[JsonDict]:
        """Returns the answer of each finished search: ``search`` and ``key`` identify it, ``words`` are those of its
        best point, None without a good one."""
        points = [(record, record["steps"].get(record.get("best"))) for record in self._searches() if record["over"]]
        return [
            {"search": str(record.get("search")), "key": record.get("key"), "words": best and list(best["words"])}
            for record, best in points
        ]

    def _searches(self) -> list[JsonDict]:
        files = sorted((self.folder / "searches").glob("*.json"))
        return [record for file in files if (record := self.read_search(file.stem)) is not None]

    def _search_file(self, id: str) -> Path:
        return self.folder / "searches" / f"{id}.json"

    def read_search(self, id: str) -> JsonDict | None:
        """Returns the steps of a search so far; None before the first one and for an unreadable file, because the
        results hold the measurements. Raises ConfigError for another release's file."""
        return self._tolerant(self._search_file(id), SEARCH_SCHEMA)

    def keep_search(self, id: str, record: Mapping[str, object]) -> None:
        """Writes the steps of a search; sets an unreadable file aside first."""
        file = self._search_file(id)
        if self.damaged.pop(file, None) is not None:
            set_aside(file)
        write_below(file, _dumped(record))

    def reopen_search(self, id: str) -> None:
        """Reopens a finished search if one of its steps will be measured again."""
        record = self.read_search(id)
        if record is not None and record["over"] and any(self.standing(step).state == OPEN for step in record["steps"]):
            self.keep_search(id, {**record, "over": False, "best": None})

    def _planned(self) -> JsonDict:
        file = self.folder / "sweep.json"
        try:
            record = _read(file, SWEEP_SCHEMA)
        except DamagedError as failure:
            move = f"mv {shlex.quote(str(file))} {shlex.quote(str(file))}.damaged"
            raise DamagedError(failure.findings[0].said(f"{move}; {_AGAIN}")) from None
        if record is None and self._points_there():
            message = f"{self.folder} holds points of a sweep, and no sweep.json"
            raise NoSweep(Finding("error", "STO001", message, ("sweep.folder",), _AGAIN))
        if record is None:
            hint = "a sweep's folder has a sweep.json: multirun/<sweep>"
            raise NoSweep(Finding("error", "STO001", f"{self.folder} holds no sweep", hint=hint))
        return record

    def _points_there(self) -> JsonDict:
        """Returns the points with a record, in the format of sweep.json."""
        names = sorted(folder.name for folder in (self.folder / "points").glob("*"))
        known = ((name, self.standing(name).record) for name in names)
        whole = ((id, record) for id, record in known if record is not None and all(key in record for key in PLANNED))
        return {id: {key: record[key] for key in PLANNED} for id, record in whole}

    def server(self, server_id: str) -> Path:
        return self.folder / "servers" / server_id

    def point(self, point_id: str) -> Path:
        return self.folder / "points" / point_id

    def state(self, point_id: str) -> State:
        """Returns whether a point is done, failed or open. Raises ConfigError for a result that is unreadable or of
        another schema: it is not replaced."""
        file = self.point(point_id) / "result.json"
        record = _read(file, RESULT_SCHEMA)
        if record is not None and record.get("point_id", point_id) != point_id:
            hint = "the file was copied from another point: move it away, and this one is taken"
            raise DamagedError(Finding("error", "STO002", f"{file} is of point {record['point_id']}", hint=hint))
        if record is not None:
            return State(DONE, record)
        failures = list(self.failures(point_id))
        last = failures[-1] if failures else None
        return State(FAILED if last and last["final"] else OPEN, last)

    def standing(self, point_id: str) -> State:
        """Returns the same, but treats an unreadable result as missing: notes it in ``damaged``, and the next runner
        sets it aside. Raises ConfigError for another release's result."""
        file = self.point(point_id) / "result.json"
        try:
            found = self.state(point_id)
        except DamagedError as failure:
            self.damaged[file] = failure.findings[0]
            return State(OPEN)
        self.damaged.pop(file, None)
        return found

    def set_aside_damaged(self, point_id: str) -> Finding | None:
        """Renames an unreadable result and returns a warning. Only the holder of the point's claim may call it."""
        file = self.point(point_id) / "result.json"
        if self.standing(point_id).state != OPEN or file not in self.damaged:
            return None
        why = self.damaged.pop(file)
        name = set_aside(file).name
        return Finding("warning", "STO006", f"{why.message}; it is kept as {name}, and the point is taken again")

    def _tolerant(self, file: Path, schema: str) -> dict[str, object] | None:
        try:
            return _read(file, schema)
        except DamagedError as failure:
            self.damaged[file] = failure.findings[0]
            return None

    def failures(self, point_id: str) -> Iterator[Mapping[str, object]]:
        """Yields the failed attempts at a point, first to last; skips unreadable ones."""
        folder = self.point(point_id) / "failed"
        for number in _numbers(folder):
            record = self._tolerant(folder / f"{number}.json", FAILURE_SCHEMA)
            if record is not None:
                yield record

    def add_result(self, point_id: str, result: Mapping[str, object], details: str | None = None) -> bool:
        """Writes a result, and its single requests as JSON lines; returns False if a result existed already."""
        folder = self.point(point_id)
        if (folder / "result.json").exists():
            return False
        if details is not None:
            write_below(folder / "raw" / "requests.jsonl", details)
        return publish(folder / "result.json", _dumped({"schema": RESULT_SCHEMA, "point_id": point_id, **result}))

    def add_failure(self, point_id: str, failure: Mapping[str, object]) -> None:
        """Writes a failed attempt beside the earlier ones."""
        _publish_next(self.point(point_id) / "failed", {"schema": FAILURE_SCHEMA, "point_id": point_id, **failure})

    def tidy(self, point_id: str) -> None:
        """Removes unfinished files of a killed writer. Only the holder of the point's claim may call it."""
        for draft in self.point(point_id).glob("**/.*.part"):
            draft.unlink(missing_ok=True)

    def reopen(self, point_id: str) -> None:
        """Sets a result, its requests and the failures aside, so that the point is measured again. Deletes nothing."""
        folder = self.point(point_id)
        self.set_aside_damaged(point_id)
        record = read_json(folder / "result.json")
        if record is not None:
            number = _publish_next(folder / "superseded", record)
            if (folder / "raw").is_dir():
                (folder / "raw").rename(folder / "superseded" / f"raw-{number}")
            (folder / "result.json").unlink()
        if (folder / "failed").is_dir():
            aside = folder / "superseded"
            aside.mkdir(exist_ok=True)
            number = sum(1 for _ in aside.glob("failed-*")) + 1
            (folder / "failed").rename(aside / f"failed-{number}")


_AGAIN = "the bench -m command that made it, with this sweep.folder, makes it again from the points that are there"


def _publish_next(folder: Path, record: Mapping[str, object]) -> int:
    """Writes a record beside the earlier ones of a folder; returns its number."""
    return next(number for number in count(1) if publish(folder / f"{number}.json", _dumped(record)))


def set_aside(file: Path) -> Path:
    """Renames an unreadable file instead of deleting it, and returns its new name."""
    names = (file.with_name(f"{file.name}.damaged-{number}") for number in count(1))
    return file.rename(next(aside for aside in names if not aside.exists()))


def _is_begun(name: str) -> bool:
    """Returns whether this entry belongs to a sweep's folder without its sweep.json (not yet written, or moved)."""
    return name in _OURS or name.startswith(("sweep.json.", ".sweep.json."))


def _numbers(folder: Path) -> list[int]:
    """Returns the sorted numbers of the records in a folder."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and is_digits(name[:-5]))


def sweep_record(sweep: Sweep) -> JsonDict:
    """Returns the contents of sweep.json: the words that recreate the sweep, and its points and servers by id."""
    return {
        "schema": SWEEP_SCHEMA,
        "words": list(sweep.words),
        "shared": [request.text for request in sweep.source.requests],
        "config_dirs": list(sweep.source.config_dirs),
        "config_name": sweep.source.config_name,
        "seed": sweep.source.seed,
        "settings": dict(sweep.settings),
        "points": {point.point_id: planned_record(point) for point in sweep.points()},
        "servers": {group.server_id: {"gpus": group.gpus, "nodes": group.nodes} for group in sweep.groups},
        "merged": sweep.merged,
        "refused": [item.__dict__ for item in sweep.refused],
        "left_out": [[list(words), list(ids)] for words, ids in sweep.left_out],
        "estimate": sweep.estimate.__dict__,
    }


def _dumped(record: Mapping[str, object]) -> str:
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def _read(file: Path, schema: str) -> JsonDict | None:
    """Reads a record of the schema; None without a file. Raises ConfigError for another release's record, DamagedError
    for any other content."""
    again = "move the file away, and it is made again"
    try:
        record = read_json(file)
    except (OSError, ValueError) as failure:
        hint = f"it was not written by this package, or the disk lost it: {again}"
        raise DamagedError(Finding("error", "STO002", f"{file} cannot be read: {failure}", hint=hint)) from None
    if record is not None and record.get("schema") != schema:
        kind = f"{schema.rpartition('/')[0]}/"
        of_release = isinstance(record.get("schema"), str) and record["schema"].startswith(kind)
        raise (ConfigError if of_release else DamagedError)(_other_schema(file, record, schema))
    problem = shape_problem(record, schema) if record is not None else None
    if problem:
        hint = f"it was not written by this package: {again}"
        raise DamagedError(Finding("error", "STO002", f"{file} cannot be read: {problem}", hint=hint))
    return record


def _other_schema(file: Path, record: Mapping[str, object], expected: str) -> Finding:
    found = record.get("schema")
    hint = "read it with the release that wrote it, or sweep into another folder: sweep.folder=multirun/NAME"
    return Finding("error", "STO003", f"{file} has schema {found!r}, and this release reads {expected!r}", hint=hint)


PLANNED = ("server_id", "workload_id", "repeat", "words")


def planned_record(point: Point) -> JsonDict:
    """Returns the identity of a planned point, or of a step of a search."""
    return {name: getattr(point, name) for name in PLANNED} | {"words": list(point.words)}


def point_record(point: Point) -> JsonDict:
    """Returns the identity of a point, and its load."""
    return {**planned_record(point), "workload": dict(point.workload)}


def failure_record(
    point: Point, kind: str, error: SglangHydraError, *, retryable: bool, final: bool, log_tail: Sequence[str] = ()
) -> JsonDict:
    """Returns the record of a failure: its class, its findings, and the end of the server's log. ``final``: it is not
    tried again in this run."""
    return {
        **point_record(point),
        "kind": kind,
        "retryable": retryable,
        "findings": [finding.to_json() for finding in error.findings],
        "log_tail": list(log_tail),
        "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "final": final,
    }


_NEEDED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "sweep": {
        "": ("words", "shared", "points", "servers"),
        "points.*": PLANNED,
        "refused.*": ("id", "count", "words", "message"),
    },
    "result": {"": ("state", "reasons", "measures")},
    "failure": {"": ("kind", "final")},
    "search": {"": ("planned", "over", "steps"), "steps.*": PLANNED},
}
"""The keys of each kind of record that its readers require."""


def shape_problem(record: JsonObject, schema: str) -> str | None:
    """Returns what in a record contradicts ``schema`` (``sglang_hydra.result/1``); None for a good one."""
    kind = schema.partition(".")[2].partition("/")[0]
    problem = misfit(kind, record, _NEEDED[kind])
    is_other = kind == "result" and problem is None and record["state"] not in ("valid", "invalid")
    return f"state is {record['state']!r}" if is_other else problem
