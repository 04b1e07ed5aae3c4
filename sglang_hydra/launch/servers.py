"""The servers that were started with ``launch.detach=true``: one file each in the state folder.

A server's supervisor writes its file, everybody may read it. A file says which process it belongs to in a way that
survives a reuse of process numbers, a restart of the machine and a home folder shared by many machines.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sglang_hydra.errors import ConfigError, MachineError
from sglang_hydra.findings import Finding
from sglang_hydra.launch.processes import Life, ProcessName

SCHEMA = "sglang_hydra.server/1"
STARTING, READY, FAILED = "starting", "ready", "failed"
STATE_DIR_VARIABLE = "SGLANG_HYDRA_STATE_DIR"

_FORGET_AFTER_S = 7 * 24 * 3600
_LONGEST_NAME = 40
_SHORTEST_ID = 4
_MOST_ALIKE = 1000


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
        """What became of its supervisor. A failed server has none any more."""
        return Life.GONE if self.state == FAILED else self.process.life()

    def to_json(self) -> dict[str, Any]:
        """The file's content; its schema is committed as schemas/server.schema.json."""
        return {"schema": SCHEMA, **asdict(self), "findings": [finding.to_json() for finding in self.findings]}


def state_folder() -> Path:
    """Where the files are: SGLANG_HYDRA_STATE_DIR, else sglang_hydra in the user's state folder (XDG_STATE_HOME)."""
    own = os.environ.get(STATE_DIR_VARIABLE)
    if own:
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    # The specification of that variable: a relative path is to be ignored.
    folder = Path(base) if base and os.path.isabs(base) else Path("~/.local/state").expanduser()
    return folder / "sglang_hydra"


def records() -> list[ServerRecord]:
    """Every server that has a file, by name. A file that cannot be read as one is left out."""
    found = [_read(path) for path in sorted(_folder().glob("*.json"))]
    return [record for record in found if record is not None]


def claim(record: ServerRecord) -> ServerRecord:
    """Writes the file of a new server, under a name that no other living server has: ``record.name``, else with a
    number. Raises MachineError where the state folder cannot be written."""
    try:
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(folder):
            _forget_old()
            for number in range(1, _MOST_ALIKE):
                named = replace(record, name=record.name if number == 1 else f"{record.name}-{number}")
                path = _path(named.name)
                there = _read(path)
                if there is not None and there.life is Life.GONE:
                    forget(there)
                if not path.exists():
                    _draft(named).replace(path)
                    return named
    except OSError as failure:
        raise MachineError(_unwritable(failure)) from failure
    raise MachineError(_unwritable(OSError(f"{_MOST_ALIKE} servers are named {record.name}")))


def update(record: ServerRecord) -> None:
    """Writes a server's file again. A full disk is no reason to stop the server: the file then stays as it is."""
    with contextlib.suppress(OSError):
        _draft(record).replace(_path(record.name))


def forget(record: ServerRecord) -> None:
    """Removes a server's file, unless another server has taken it over."""
    path = _path(record.name)
    there = _read(path)
    if there is None or there.process == record.process:
        with contextlib.suppress(OSError):
            path.unlink()


def chosen(words: Sequence[str], known: Sequence[ServerRecord], verb: str) -> list[ServerRecord]:
    """The servers that ``words`` name: by name or its beginning, port, url or the beginning of a server_id; ``all`` is
    each of them.

    Without a word the only one there is. Raises ConfigError for a word that names none or several, and for no word
    where there are several.
    """
    if not words:
        if len(known) > 1:
            message = f"{verb} which one? There are {', '.join(record.name for record in known)}"
            raise ConfigError(Finding("error", "LCH007", message, hint=f"{verb} {known[0].name}"))
        return list(known)
    found: list[ServerRecord] = []
    for word in words:
        named = list(known) if word == "all" else _named(word, known)
        if not named and word != "all":
            raise ConfigError(_no_such(word, known, verb))
        if len(named) > 1 and word != "all":
            names = ", ".join(record.name for record in named)
            raise ConfigError(Finding("error", "LCH007", f"{word} may be {names}", hint=f"{verb} {named[0].name}"))
        found += [record for record in named if record not in found]
    return found


def short_name(model: str, port: int) -> str:
    """What a server is called: its model and its port, as a file name and a word of a shell."""
    last = model.rstrip("/").rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-.")[:_LONGEST_NAME]
    return f"{plain or 'server'}-{port}"


def _named(word: str, known: Sequence[ServerRecord]) -> list[ServerRecord]:
    exactly = [record for record in known if word in (record.name, record.url, record.url.rpartition(":")[2])]
    if exactly or not word:
        return exactly
    return [
        record
        for record in known
        if record.name.startswith(word) or (len(word) >= _SHORTEST_ID and record.server_id.startswith(word))
    ]


def _no_such(word: str, known: Sequence[ServerRecord], verb: str) -> Finding:
    from sglang_hydra.words import nearest, short

    names = [record.name for record in known]
    near = nearest(word, names)
    there = (
        f"there are {', '.join(names)}" if names else "none was started with launch.detach=true, or all were stopped"
    )
    hint = f"{verb} {near}" if near else None
    return Finding("error", "LCH007", f"no detached server is named {short(word)!r}: {there}", hint=hint)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other process or thread is here; on a file system without locks, while none is expected."""
    import fcntl

    with (folder / ".lock").open("ab") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget_old() -> None:
    for record in records():
        if record.ended_at is not None and time.time() - record.ended_at > _FORGET_AFTER_S:
            forget(record)


def _folder() -> Path:
    return state_folder() / "servers"


def _path(name: str) -> Path:
    return _folder() / f"{name}.json"


def _draft(record: ServerRecord) -> Path:
    path = _folder() / f".{record.name}.{os.getpid()}.part"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(record.to_json(), file, indent=2)
        file.write("\n")
    return path


def _read(path: Path) -> ServerRecord | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("schema") != SCHEMA:
            return None
        content["process"] = ProcessName(**content["process"])
        content["findings"] = tuple(_findings(content["findings"]))
        record = ServerRecord(**content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return record if record.name == path.stem else None


def _findings(found: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    for item in found:
        upstream = item["upstream"]
        lines = (upstream[0], upstream[1]) if upstream else None
        yield Finding(**{**item, "fields": tuple(item["fields"]), "upstream": lines})


def _unwritable(failure: OSError) -> Finding:
    message = f"the state folder {state_folder()} cannot be written: {failure.strerror or failure}"
    hint = f"export {STATE_DIR_VARIABLE}=/a/folder/of/yours; or start it without launch.detach=true"
    return Finding("error", "LCH008", message, ("launch.detach",), hint)
