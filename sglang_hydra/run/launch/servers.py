"""Stores the servers that were started with ``launch.detach=true``: one file each in the state folder.

A server's supervisor writes its file; everybody may read it. A file identifies its process even after reuse of process
numbers, a restart of the machine, or in a home folder shared by many machines. Anybody with write access to the folder
can write any content, so nothing in a file is used before it passes the schema."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from sglang_hydra.run.launch.processes import Life, ProcessName
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject, json_beside
from sglang_hydra.text.record_shape import misfit
from sglang_hydra.text.whole_file import write_whole

SCHEMA = "sglang_hydra.server/1"
STARTING, READY, FAILED = "starting", "ready", "failed"

_MOST_BYTES = 1 << 20


class NoRecord(Exception):
    """A file that is no server record; the text is the reason, as a clause."""


@dataclass(frozen=True)
class ServerRecord:
    """One server. Times are seconds since 1970 (UTC), None for a future event.

    ``state`` is the last one from its supervisor: starting, ready, or failed (it ended without a request; a stopped
    server has no file). ``milestone`` is the progress of a starting server. ``findings`` say what went wrong, ``kind``
    is the failure class. Contains no secret."""

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
        """Returns the state of its supervisor; GONE for a failed server."""
        return Life.GONE if self.state == FAILED else self.process.life()

    def to_json(self) -> JsonDict:
        """Returns the file's content; its schema is schemas/server.schema.json."""
        return {"schema": SCHEMA, **asdict(self), "findings": [finding.to_json() for finding in self.findings]}


_NEEDED = {
    "": ["schema", *(field.name for field in fields(ServerRecord))],
    "process": [field.name for field in fields(ProcessName)],
    "findings.*": ["level", "id", "message", "fields", "hint"],
}


def read_record(path: Path) -> ServerRecord:
    """Reads a server's file and checks it against the schema. Raises NoRecord for an invalid one."""
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


def _out_of_bounds(content: JsonObject) -> str | None:
    """Returns the first value that breaks the schema's patterns, enumerations or limits, or None."""
    schema = json_beside(str(Path(__file__).parents[2] / "schemas" / "server.schema.json"))
    known = schema["properties"]
    looked_at = [(content, known), (content["process"], known["process"]["properties"])]
    looked_at += [(finding, schema["$defs"]["finding"]["properties"]) for finding in content["findings"]]
    for record, specs in looked_at:
        for name, value in record.items():
            spec = specs.get(name, {})
            fits = value in spec.get("enum", (value,))
            if isinstance(value, str):
                fits = fits and re.search(spec.get("pattern", ""), value) is not None
            elif isinstance(value, int | float):
                fits = fits and spec.get("minimum", value) <= value <= spec.get("maximum", value)
            if not fits:
                return f"{name} is {value!r}"[:100]
    return None


def _content(path: Path) -> JsonDict:
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


STATE_DIR_VARIABLE = "SGLANG_HYDRA_STATE_DIR"

_FORGET_AFTER_S = 7 * 24 * 3600
_LONGEST_NAME = 40
_SHORTEST_ID = 4
_MOST_ALIKE = 1000


def state_folder() -> Path:
    """Returns the state folder: SGLANG_HYDRA_STATE_DIR, else sglang_hydra below XDG_STATE_HOME."""
    own, base = os.environ.get(STATE_DIR_VARIABLE), os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification says to ignore a relative path.
    home = base if os.path.isabs(base) else "~/.local/state"
    return Path(own or f"{home}/sglang_hydra").expanduser().absolute()


def records() -> list[ServerRecord]:
    """Returns every server with a readable file, by name. ``damaged`` reports the others."""
    found: list[ServerRecord] = []
    with contextlib.suppress(OSError):
        found += filter(None, map(_read, _files()))
    return found


def damaged() -> list[Finding]:
    """Returns a finding for each unreadable file of the state folder: the problem and what to type. Keeps the file,
    because its server may live."""
    return list(_damages().values())


def _damages() -> dict[Path, Finding]:
    """Returns the findings on unreadable files of the state folder by path; on an unreadable folder by its own path."""
    try:
        files = _files()
    except OSError as failure:
        why = failure.strerror or str(failure)
        message = f"the state folder {_folder()} cannot be read: {why}"
        return {_folder(): _damage(message, f"ls -ld {_quoted(_folder())}")}
    found: dict[Path, Finding] = {}
    for path in files:
        try:
            read_record(path)
        except NoRecord as failure:
            hint = f"pgrep -af supervisor.py shows servers that live; then mv {_quoted(path)} {_quoted(path)}.old"
            if os.path.lexists(path):  # else its server was stopped meanwhile
                found[path] = _damage(f"{path} is left out: {failure}", hint)
    return found


def claim(record: ServerRecord) -> ServerRecord:
    """Writes the file of a new server under a name that no other live server has: ``record.name``, or that with a
    number. Raises MachineError if the state folder cannot be written."""
    try:
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(folder):
            for old in records():
                if old.ended_at is not None and time.time() - old.ended_at > _FORGET_AFTER_S:
                    forget(old)
            for number in range(1, _MOST_ALIKE):
                named = replace(record, name=record.name if number == 1 else f"{record.name}-{number}")
                path = _path(named.name)
                there = _read(path)
                if there is not None and there.life is Life.GONE:
                    forget(there)
                if not path.exists():
                    _write(named)
                    return named
    except OSError as failure:
        raise MachineError(_unwritable(failure)) from failure
    raise MachineError(_unwritable(OSError(f"{_MOST_ALIKE} servers are named {record.name}")))


def update(record: ServerRecord) -> None:
    """Writes a server's file again. On a full disk it keeps the old file, and the server continues."""
    with contextlib.suppress(OSError):
        _write(record)


def forget(record: ServerRecord) -> None:
    """Removes a server's file, unless another server has taken it or it is unreadable."""
    path = _path(record.name)
    there = _read(path)
    if there is not None and there.process == record.process:
        with contextlib.suppress(OSError):
            path.unlink()


def chosen(words: Sequence[str], known: Sequence[ServerRecord], verb: str) -> list[ServerRecord]:
    """Returns the servers that ``words`` name: by the start of a name, a port, a URL or the start of a server_id;
    ``all`` names each.

    Without a word returns the only server. Raises ConfigError for a word that matches none or several, and for no word
    with several servers."""
    if not words:
        if len(known) > 1:
            message = f"{verb} which one? There are {', '.join(record.name for record in known)}"
            raise ConfigError(Finding("error", "LCH007", message, hint=f"{verb} {known[0].name}"))
        return list(known)
    found: list[ServerRecord] = []
    for word in words:
        meant = list(known) if word == "all" else named(word, known)
        if not meant and word != "all":
            raise ConfigError(_no_such(word, known, verb))
        if len(meant) > 1 and word != "all":
            names = ", ".join(record.name for record in meant)
            raise ConfigError(Finding("error", "LCH007", f"{word} may be {names}", hint=f"{verb} {meant[0].name}"))
        found += [record for record in meant if record not in found]
    return found


def short_name(model: str, port: int) -> str:
    """Makes a server's name from its model and its port, valid as a file name and a shell word."""
    last = model.rstrip("/").rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-.")[:_LONGEST_NAME]
    return f"{plain or 'server'}-{port}"


def named(word: str, known: Sequence[ServerRecord]) -> list[ServerRecord]:
    """Returns the servers that a word means: by name or its beginning, port, url or the beginning of a server_id."""
    exactly = [record for record in known if word in (record.name, record.url, record.url.rpartition(":")[2])]
    if exactly or not word:
        return exactly
    id = word if len(word) >= _SHORTEST_ID else "no id"
    return [record for record in known if record.name.startswith(word) or record.server_id.startswith(id)]


def _no_such(word: str, known: Sequence[ServerRecord], verb: str) -> Finding:
    from sglang_hydra.text.words import nearest, short

    if (broken := _damages().get(_path(word))) is not None:
        return Finding("error", "LCH007", f"{short(word)} cannot be reached: {broken.message}", hint=broken.remedies)
    names = [record.name for record in known]
    near = nearest(word, names)
    there = f"there are {', '.join(names)}" if names else "none was started with launch.detach=true, or all have ended"
    message = f"no detached server is named {short(word)!r}: {there}"
    return Finding("error", "LCH007", message, hint=f"{verb} {near}" if near else None)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Excludes other processes and threads during the block; does nothing on a file system without locks."""
    import fcntl

    with (folder / ".lock").open("ab") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _files() -> list[Path]:
    """Returns the paths that should be server records. Raises OSError for an unreadable folder."""
    try:
        names = os.listdir(_folder())
    except FileNotFoundError:
        return []
    return sorted(_folder() / name for name in names if name.endswith(".json") and not name.startswith("."))


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _damage(message: str, hint: str) -> Finding:
    return Finding("warning", "LCH012", message, (STATE_DIR_VARIABLE,), hint)


def _folder() -> Path:
    return state_folder() / "servers"


def _path(name: str) -> Path:
    return _folder() / f"{name}.json"


def _write(record: ServerRecord) -> None:
    write_whole(_path(record.name), json.dumps(record.to_json(), indent=2) + "\n", mode=0o600)


def _read(path: Path) -> ServerRecord | None:
    try:
        return read_record(path)
    except NoRecord:
        return None


def _unwritable(failure: OSError) -> Finding:
    message = f"the state folder {state_folder()} cannot be written: {failure.strerror or failure}"
    hint = f"export {STATE_DIR_VARIABLE}=/a/folder/of/yours; or start it without launch.detach=true"
    return Finding("error", "LCH008", message, ("launch.detach",), hint)
