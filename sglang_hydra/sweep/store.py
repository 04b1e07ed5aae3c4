"""Where a sweep's results lie: a folder that any number of runners, and the report, read and write.

    multirun/<sweep>/
      sweep.json                      what was planned: its points, its servers, the words that were typed
      servers/<server_id>/            plan.json, server.log
      points/<point_id>/result.json   what was measured; written once, never over another
      points/<point_id>/failed/N.json attempts that brought no measurement, with their class and the end of the log
      points/<point_id>/raw/          single requests
      points/<point_id>/superseded/N.json  results that were taken again on request
      claims/                         who works on what

Everything is keyed by ids, never by how an override was spelled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sglang_hydra.errors import ConfigError
from sglang_hydra.findings import Finding
from sglang_hydra.sweep.files import publish, read_json, write_whole
from sglang_hydra.sweep.points import Sweep

SWEEP_SCHEMA = "sglang_hydra.sweep/1"
RESULT_SCHEMA = "sglang_hydra.result/1"
FAILURE_SCHEMA = "sglang_hydra.failure/1"

DONE, FAILED, OPEN = "done", "failed", "open"


class State(NamedTuple):
    """How far a point is: done (a result is there, valid or not), failed (the last failure was final), or open.
    ``record`` is that result or failure; of an open point its last failure, if there is one."""

    state: str
    record: Mapping[str, Any] | None = None


class Store:
    """One sweep's folder. Raises ConfigError for a folder that holds something else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, sweep: Sweep) -> None:
        """Makes the folder, or adds to the one that is there: points that an earlier command planned stay.

        Raises ConfigError for a folder that is no sweep's, OSError where it cannot be written.
        """
        file = self.folder / "sweep.json"
        if self.folder.is_dir() and any(self.folder.iterdir()) and not file.is_file():
            message = f"{self.folder} is not empty and holds no sweep"
            raise ConfigError(Finding("error", "STO001", message, ("sweep.folder",), "sweep.folder=multirun/NAME"))
        before = self.read_sweep() if file.is_file() else {}
        record = sweep_record(sweep)
        for part in ("points", "servers"):
            record[part] = {**before.get(part, {}), **record[part]}
        if record != before:
            write_whole(file, _dumped(record))

    def read_sweep(self) -> dict[str, Any]:
        """What was planned. Raises ConfigError, saying which, for a folder without it, an older or a broken one."""
        file = self.folder / "sweep.json"
        try:
            record = read_json(file)
        except (OSError, ValueError) as failure:
            raise ConfigError(Finding("error", "STO002", f"{file} cannot be read: {failure}")) from None
        if record is None:
            hint = "a sweep's folder has a sweep.json: multirun/<sweep>"
            raise ConfigError(Finding("error", "STO001", f"{self.folder} holds no sweep", hint=hint))
        if record.get("schema") != SWEEP_SCHEMA:
            raise ConfigError(_other_schema(file, record, SWEEP_SCHEMA))
        return record

    def server(self, server_id: str) -> Path:
        """The folder of a server's plan and log."""
        return self.folder / "servers" / server_id

    def point(self, point_id: str) -> Path:
        """The folder of a point."""
        return self.folder / "points" / point_id

    def state(self, point_id: str) -> State:
        """Whether a point is done, failed or open. A result that cannot be read counts as done: it is not replaced.

        Raises ConfigError for a result of another schema.
        """
        file = self.point(point_id) / "result.json"
        try:
            record = read_json(file)
        except (OSError, ValueError) as failure:
            raise ConfigError(Finding("error", "STO002", f"{file} cannot be read: {failure}")) from None
        if record is not None:
            if record.get("schema") != RESULT_SCHEMA:
                raise ConfigError(_other_schema(file, record, RESULT_SCHEMA))
            return State(DONE, record)
        last = None
        for last in self.failures(point_id):
            continue
        return State(FAILED, last) if last is not None and last["final"] else State(OPEN, last)

    def failures(self, point_id: str) -> Iterator[Mapping[str, Any]]:
        """The failed attempts at a point, first to last."""
        folder = self.point(point_id) / "failed"
        for number in _numbers(folder):
            file = folder / f"{number}.json"
            try:
                record = read_json(file)
            except (OSError, ValueError) as failure:
                raise ConfigError(Finding("error", "STO002", f"{file} cannot be read: {failure}")) from None
            if record is None:
                continue
            if record.get("schema") != FAILURE_SCHEMA:
                raise ConfigError(_other_schema(file, record, FAILURE_SCHEMA))
            yield record

    def add_result(self, point_id: str, result: Mapping[str, Any], details: str | None = None) -> bool:
        """Keeps a result, and its single requests as JSON lines; says False where a result was there already."""
        folder = self.point(point_id)
        if details is not None:
            write_whole(folder / "raw" / "requests.jsonl", details)
        return publish(folder / "result.json", _dumped({"schema": RESULT_SCHEMA, "point_id": point_id, **result}))

    def add_failure(self, point_id: str, failure: Mapping[str, Any]) -> None:
        """Keeps a failed attempt beside those before it."""
        record = _dumped({"schema": FAILURE_SCHEMA, "point_id": point_id, **failure})
        number = 1
        while not publish(self.point(point_id) / "failed" / f"{number}.json", record):
            number += 1

    def reopen(self, point_id: str) -> None:
        """Sets a result and the failures aside, so that the point is taken again. Nothing is deleted."""
        folder = self.point(point_id)
        record = read_json(folder / "result.json")
        if record is not None:
            number = 1
            while not publish(folder / "superseded" / f"{number}.json", _dumped(record)):
                number += 1
            (folder / "result.json").unlink()
        if (folder / "failed").is_dir():
            aside = folder / "superseded"
            aside.mkdir(exist_ok=True)
            number = sum(1 for _ in aside.glob("failed-*")) + 1
            (folder / "failed").rename(aside / f"failed-{number}")


def _numbers(folder: Path) -> list[int]:
    """The numbers of the records in a folder, upwards."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def sweep_record(sweep: Sweep) -> dict[str, Any]:
    """What sweep.json holds: the words that make the sweep again, and its points and servers by their ids."""
    return {
        "schema": SWEEP_SCHEMA,
        "words": list(sweep.words),
        "shared": [request.text for request in sweep.source.requests],
        "config_dirs": list(sweep.source.config_dirs),
        "config_name": sweep.source.config_name,
        "seed": sweep.source.seed,
        "settings": dict(sweep.settings),
        "points": {
            point.point_id: {
                "server_id": point.server_id,
                "workload_id": point.workload_id,
                "repeat": point.repeat,
                "words": list(point.words),
            }
            for point in sweep.points()
        },
        "servers": {group.server_id: {"gpus": group.gpus, "nodes": group.nodes} for group in sweep.groups},
        "merged": sweep.merged,
        "refused": [item.__dict__ for item in sweep.refused],
        "left_out": [[list(words), list(ids)] for words, ids in sweep.left_out],
        "estimate": sweep.estimate.__dict__,
    }


def _dumped(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def _other_schema(file: Path, record: Mapping[str, Any], expected: str) -> Finding:
    found = record.get("schema")
    hint = "read it with the release that wrote it, or sweep into another folder: sweep.folder=multirun/NAME"
    return Finding("error", "STO003", f"{file} has schema {found!r}, and this release reads {expected!r}", hint=hint)
