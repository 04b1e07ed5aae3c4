"""A detached server's file: what it holds, and whether a file is one.

Whoever may write the state folder may write anything into it, and a disk that was full leaves half a file: nothing in
it is used before it was held against the schema.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sglang_hydra.run.launch.processes import Life, ProcessName
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import json_beside
from sglang_hydra.text.record_shape import misfit

SCHEMA = "sglang_hydra.server/1"
STARTING, READY, FAILED = "starting", "ready", "failed"

_MOST_BYTES = 1 << 20


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


_NEEDED = {
    "": ["schema", *(field.name for field in fields(ServerRecord))],
    "process": [field.name for field in fields(ProcessName)],
    "findings.*": ["level", "id", "message", "fields", "hint"],
}


def read_record(path: Path) -> ServerRecord:
    """The server that a file is of, by the schema of such files. Raises NoRecord where it is of none."""
    content = _content(path)
    unknown = sorted(content.keys() - {*_NEEDED[""]})
    if unknown:
        raise NoRecord(f"it has a key {unknown[0][:60]!r} that is unknown")
    if found := misfit("server", content, _NEEDED) or _out_of_bounds(content):
        raise NoRecord(found)
    if content["name"] != path.stem:
        raise NoRecord(f"it is the file of {content['name'][:60]!r}, under another name")
    del content["schema"]
    content["process"] = ProcessName(**{name: content["process"][name] for name in _NEEDED["process"]})
    content["findings"] = tuple(map(Finding.from_json, content["findings"]))
    return ServerRecord(**content)


def _out_of_bounds(content: Mapping[str, Any]) -> str | None:
    """Finds a text of another form than the schema says, a word of no choice, or a number beyond its limits."""
    schema = json_beside(str(Path(__file__).parents[2] / "schemas" / "server.schema.json"))
    known = schema["properties"]
    looked_at = [(content, known), (content["process"], known["process"]["properties"])]
    looked_at += [(finding, schema["$defs"]["finding"]["properties"]) for finding in content["findings"]]
    for record, specs in looked_at:
        for name, value in record.items():
            spec = specs.get(name, {})
            is_other = value not in spec.get("enum", (value,))
            if isinstance(value, str):
                is_other = is_other or re.search(spec.get("pattern", ""), value) is None
            elif isinstance(value, int | float):
                is_other = is_other or not spec.get("minimum", value) <= value <= spec.get("maximum", value)
            if is_other:
                return f"{name} is {value!r}"[:100]
    return None


def _content(path: Path) -> dict[str, Any]:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise NoRecord("it is no file")
        if about.st_size > _MOST_BYTES:
            raise NoRecord(f"it has {about.st_size} bytes")
        content = read_json(path.read_text(encoding="utf-8"), "record")
    except OSError as failure:
        raise NoRecord(f"it cannot be read: {failure.strerror or failure}") from failure
    except (ValueError, RecursionError) as failure:
        raise NoRecord("it is empty" if about.st_size == 0 else "it is no JSON") from failure
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        problem = "it names no schema" if schema is None else f"its schema is {json.dumps(schema)[:60]}"
        raise NoRecord(f"{problem}, and this sglang-hydra reads {SCHEMA}")
    return dict(content)
