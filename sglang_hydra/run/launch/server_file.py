"""A detached server's file: what it holds, and whether a file is one.

Whoever may write the state folder may write anything into it, and a disk that was full leaves half a file: nothing in
it is used before its type and its range were looked at.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sglang_hydra.run.launch.processes import Life, ProcessName
from sglang_hydra.text.findings import Finding

SCHEMA = "sglang_hydra.server/1"
STARTING, READY, FAILED = "starting", "ready", "failed"

_MOST_BYTES = 1 << 20
_LATEST_S = 1e11
"""Seconds since 1970 that every clock can show."""
_LONGEST_S = 30 * 24 * 3600
_FINDING_KEYS = set(Finding("info", "", "").to_json())
_LARGEST_PID = 1 << 31
_URL = re.compile(r"https?://[^/\s?#@]{1,300}:(\d{1,5})")


class NoRecord(Exception):
    """A file that is no server's; the text is why, in a clause."""


@dataclass(frozen=True)
class ServerRecord:
    """One server. Times are seconds since 1970 (UTC), None for what has not happened.

    ``state`` is what its supervisor last wrote: starting, ready, or failed (it ended and nobody had asked it to; one
    that was stopped has no file any more). ``milestone`` is how far a starting server has come. ``findings`` say what
    went wrong, ``kind`` its class. It holds no secret.
    """

    name: str
    server_id: str
    url: str
    health: str
    model: str
    engine: str
    run_folder: str
    log: str
    stop_timeout: float
    process: ProcessName
    started_at: float
    state: str = STARTING
    milestone: str = ""
    ready_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    kind: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def life(self) -> Life:
        """The state of its supervisor. A failed server has none any more."""
        return Life.GONE if self.state == FAILED else self.process.life()

    def to_json(self) -> dict[str, Any]:
        """The file's content; its schema is committed as schemas/server.schema.json."""
        return {"schema": SCHEMA, **asdict(self), "findings": [finding.to_json() for finding in self.findings]}


def read_record(path: Path) -> ServerRecord:
    """The server that a file is of. Raises NoRecord where it is of none."""
    content = _content(path)
    for key, fits in _FIELDS.items():
        if key not in content:
            raise NoRecord(f"{key} is missing")
        if not fits(content[key]):
            raise NoRecord(f"{key} is {json.dumps(content[key])[:60]}")
    unknown = sorted(set(content) - set(_FIELDS) - {"schema"})
    if unknown:
        raise NoRecord(f"it has a key {unknown[0][:60]!r} that is unknown")
    if content["name"] != path.stem:
        raise NoRecord(f"it is the file of {content['name'][:60]!r}, under another name")
    del content["schema"]
    content["process"] = ProcessName(**content["process"])
    content["findings"] = tuple(map(Finding.from_json, content["findings"]))
    return ServerRecord(**content)


def _content(path: Path) -> dict[str, Any]:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise NoRecord("it is no file")
        if about.st_size > _MOST_BYTES:
            raise NoRecord(f"it has {about.st_size} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise NoRecord(f"it cannot be read: {failure.strerror or failure}") from failure
    except (ValueError, RecursionError) as failure:
        raise NoRecord("it is empty" if about.st_size == 0 else "it is no JSON") from failure
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        problem = "it names no schema" if schema is None else f"its schema is {json.dumps(schema)[:60]}"
        raise NoRecord(f"{problem}, and this sglang-hydra reads {SCHEMA}")
    return dict(content)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(low: float, high: float) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        return plain and math.isfinite(value) and low <= value <= high

    return fits


def _or_null(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_url(value: Any) -> bool:
    found = _URL.fullmatch(value) if _text(value) else None
    return found is not None and int(found[1]) < 1 << 16


def _is_process(value: Any) -> bool:
    """0 and negative numbers mean groups of processes to the system."""
    if not isinstance(value, dict) or set(value) != {"pid", "started", "boot", "namespace", "host"}:
        return False
    pid = value["pid"]
    return _whole(pid) and 0 < pid < _LARGEST_PID and all(_text(value[key]) for key in value if key != "pid")


def _are_findings(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_finding, value))


def _is_finding(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != _FINDING_KEYS:
        return False
    texts = all(_text(value[key]) for key in ("id", "message", "stage")) and _or_null(_text)(value["hint"])
    lines, names = value["upstream"], value["fields"]
    return (
        texts
        and value["level"] in ("error", "warning", "info")
        and isinstance(names, list)
        and all(map(_text, names))
        and (lines is None or (isinstance(lines, list) and len(lines) == 2 and all(map(_whole, lines))))
    )


_TIME = _number(0, _LATEST_S)
_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "name": lambda value: _text(value) and bool(value),
    "server_id": _text,
    "url": _is_url,
    "health": lambda value: _text(value) and value.startswith("/") and value.isprintable() and " " not in value,
    "model": _text,
    "engine": _text,
    "run_folder": _text,
    "log": lambda value: _text(value) and "\0" not in value,
    "stop_timeout": _number(0, _LONGEST_S),
    "process": _is_process,
    "started_at": _TIME,
    "state": lambda value: value in (STARTING, READY, FAILED),
    "milestone": _text,
    "ready_at": _or_null(_TIME),
    "ended_at": _or_null(_TIME),
    "exit_code": _or_null(_whole),
    "kind": _or_null(_text),
    "findings": _are_findings,
}
