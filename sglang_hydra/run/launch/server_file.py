"""A detached server's file: what it holds, and whether a file is one.

Whoever may write the state folder may write anything into it, and a disk that was full leaves half a file: nothing in
it is used before it was held against the schema.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sglang_hydra.run.launch.processes import Life, ProcessName
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import json_beside

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


def read_record(path: Path) -> ServerRecord:
    """The server that a file is of, by the schema of such files. Raises NoRecord where it is of none."""
    content = _content(path)
    specs = _SPECS["properties"]
    for key in specs:
        if key not in content:
            raise NoRecord(f"{key} is missing")
        if not _fits(content[key], specs[key]):
            raise NoRecord(f"{key} is {json.dumps(content[key])[:60]}")
    unknown = sorted(set(content) - set(specs))
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


def _fits(value: Any, spec: Mapping[str, Any]) -> bool:
    """Whether a value of JSON is what its part of the schema says, as far as the schema of these files goes."""
    if "$ref" in spec:
        spec = _SPECS["$defs"][spec["$ref"].rpartition("/")[2]]
    if "enum" in spec:
        return value in spec["enum"]
    kinds = spec.get("type", [])
    if kinds and not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if isinstance(value, str):
        return re.search(spec.get("pattern", ""), value) is not None
    if isinstance(value, int | float):
        return bool(spec.get("minimum", -math.inf) <= value <= spec.get("maximum", math.inf))
    if isinstance(value, list):
        enough = spec.get("minItems", 0) <= len(value) <= spec.get("maxItems", len(value))
        return enough and all(_fits(item, spec.get("items", {})) for item in value)
    if isinstance(value, dict):
        known = spec["properties"]
        return set(value) == set(known) and all(_fits(value[name], known[name]) for name in known)
    return True


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS[kind]) and (not isinstance(value, float) or math.isfinite(value))


_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_SPECS = json_beside(str(Path(__file__).parents[2] / "schemas" / "server.schema.json"))
