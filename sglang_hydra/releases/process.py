"""Runs one release on one kind of machine in a child process, until the parent ends."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import secrets
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglang_hydra.facts.tiny import default_cache
from sglang_hydra.releases.child.sandbox import hide_memory, landlock_version
from sglang_hydra.releases.records import Record
from sglang_hydra.text.budget import uncounted
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.private import make_private, mark, put_whole, require_private

START_S = 120.0
CASE_S = 60.0
MOST_CHILDREN = 2
CODES = "codes"
"""The folder in the cache with our byte code."""
_HERE = Path(__file__).resolve().parent
_MARGIN_S = 10.0
_MAY_CHANGE = ("memory_mib", "count", "name")
"""The facts that may change from case to case within one child; its import may have used all others."""
_NEEDED_TO_START = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "SYSTEMROOT")


class ChildFailed(Exception):
    """The child gave no answer; the text is the reason, in a clause."""


class Incomplete(ChildFailed):
    """The child asked for files that its wheels have and that were not fetched: ``names``, by a wheel's folder."""

    def __init__(self, names: Mapping[Path, Sequence[str]]) -> None:
        super().__init__(f"it reads {next(iter(names.values()))[0]}, which was not fetched")
        self.names = names


class Child:
    """One child. ``places`` are the folders of the record's wheels, in their order; ``facts`` is its machine. With
    ``python``, the interpreter to run, they are those of an environment, the release's own first: its files are used
    unchanged, and no byte code is kept. ``before`` is code that the child runs before its loop. Raises ChildFailed if
    the release cannot be imported, MachineError (REL003) if a file of a wheel was changed, (REL015) if others can
    change kept files."""

    def __init__(
        self,
        record: Record,
        places: Sequence[Path],
        facts: Mapping[str, object],
        limit_s: float = CASE_S,
        python: str | None = None,
        before: str = "",
    ) -> None:
        self._codes = None if python else codes_of(record)
        if self._codes is not None:
            require_private(self._codes.parent)
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the child has failed
        self._scratch = _scratch()
        options = {
            "version": record.version,
            "release": str(places[0]),
            "folders": [str(place) for place in places[1:]],
            "libraries": [wheel.name for wheel in record.libraries],
            "real_parts": record.real_parts,
            "parent": os.getpid(),
            "scratch": str(self._scratch),
        }
        if self._codes is not None:
            lists = {str(place): wheel.lists for place, wheel in zip(places, record.wheels, strict=True)}
            key = mark(f"byte code {self._codes.name}").hex()
            options |= {"lists": lists, "codes": str(self._codes), "key": key}
        program = (
            f"import sys; sys.path.insert(0, {str(_HERE)!r}); from child.main import main; "
            f"exec({before!r}); del sys.path[0]; sys.exit(main())"
        )
        interpreter = [python, "-B"] if python else [sys.executable]
        _hide_from(self, True)
        try:
            self._process = subprocess.Popen(
                [*interpreter, "-I", "-S", "-X", "utf8", "-W", "ignore", "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=str(places[0]),
                env={name: os.environ[name] for name in _NEEDED_TO_START if name in os.environ},
                start_new_session=True,  # Ctrl-C is for the parent, which ends it
            )
        except OSError as failure:
            self._scratch.rmdir()
            _hide_from(self, False)
            raise ChildFailed(f"{interpreter[0]} cannot be run: {failure.strerror or failure}") from failure
        try:
            self._send(options)
            self.greeting = self._exchange(facts, START_S)
            if "version" not in self.greeting:
                raise ChildFailed(str(self.greeting.get("unanswered", "it did not start")))
        except (ChildFailed, MachineError):
            self.end()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @uncounted()
    def ask(self, case: Mapping[str, object]) -> JsonDict:
        """Returns the answer to one case. Raises ChildFailed if the child ends or exceeds its time limit."""
        with self._lock:
            try:
                return self._exchange(case, self.limit_s)
            except (Incomplete, MachineError):
                self.end()
                raise

    def end(self) -> None:
        """Ends the child and waits for it."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.close()
            self._process.wait(timeout=2.0)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        stdout.close()
        self._errors.close()
        if self._codes is not None and (made := self._scratch / "codes").is_file():
            with contextlib.suppress(OSError, MachineError):
                make_private(self._codes.parent)
                put_whole(self._codes, made)
        shutil.rmtree(self._scratch, ignore_errors=True)
        _hide_from(self, False)

    def _exchange(self, record: Mapping[str, object], limit_s: float) -> dict[str, object]:
        stdout = self._process.stdout
        assert stdout is not None
        self._send(record)
        line = bytearray()
        deadline = time.monotonic() + limit_s + _MARGIN_S
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(stdout.fileno(), 1 << 16) if ready else b""
            if not chunk:
                late = not ready
                self._process.kill()
                self._process.wait()
                raise self._failed(f"it gave no answer within {limit_s:.0f} s" if late else "it ended")
            line += chunk
        answer: JsonDict = json.loads(line)
        if "changed" in answer:
            raise changed_file(answer["changed"])
        if "missing" in answer:
            names: dict[Path, list[str]] = {}
            for folder, name in answer["missing"]:
                names.setdefault(Path(folder), []).append(name)
            raise Incomplete(names)
        return answer

    def _send(self, record: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(record).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as failure:
            raise self._failed("it ended before it was asked") from failure

    def _failed(self, why: str) -> ChildFailed:
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
        return ChildFailed(f"{why}: {lines[-1][:300]}" if lines else why)


_hidden_from: set[int] = set()


def _hide_from(child: Child, is_there: bool) -> None:
    """Hides this process's memory and environment while there is a child that Landlock does not restrict."""
    if landlock_version() < 1:
        (_hidden_from.add if is_there else _hidden_from.discard)(id(child))
        hide_memory(bool(_hidden_from))


def changed_file(path: str) -> MachineError:
    """Returns the error for a file that is not what its wheel had."""
    place = next((above for above in Path(path).parents if above.parent.name == "wheels"), path)
    message = f"{path} is not what its wheel had: it was changed or added"
    hint = f"rm -r {shlex.quote(str(place))}, and fetch the release again"
    return MachineError(Finding("error", "REL003", message, hint=hint))


def codes_of(record: Record) -> Path:
    """Returns the place of a release's byte code, for this Python."""
    return default_cache() / CODES / f"{record.fingerprint}-{importlib.util.MAGIC_NUMBER.hex()}"


def _scratch() -> Path:
    """Returns a new folder for this user alone, without a small letter in its name: transformers reads a config without
    ``model_type`` by the first type that occurs anywhere in the model's path, and a random name can contain one
    (``tmp`` and ``t``: MPT)."""
    folder = Path(tempfile.gettempdir(), f"SGLANG_HYDRA-{secrets.token_hex(16).upper()}")
    folder.mkdir(mode=0o700)
    return folder


_children: dict[tuple[int, str, tuple[Path, ...], str], Child] = {}
_children_lock = threading.Lock()


@uncounted()
def child_for(record: Record, places: Sequence[Path], facts: Mapping[str, object], python: str | None = None) -> Child:
    """Returns the child for this release and this kind of machine, started at first need. Raises ChildFailed."""
    fixed = {name: value for name, value in facts.items() if name not in _MAY_CHANGE}
    key = (os.getpid(), record.fingerprint, tuple(places), json.dumps(fixed, sort_keys=True))
    with _children_lock:
        child = _children.pop(key, None)
        if child is not None and not child.is_alive:
            child.end()
            child = None
        mine = [other for other in _children if other[0] == os.getpid()]
        for oldest in mine[: max(0, len(mine) - MOST_CHILDREN + 1)]:
            _children.pop(oldest).end()
        _children[key] = child or Child(record, places, facts, python=python)
        return _children[key]


def end_children() -> None:
    """Ends every child of this process."""
    with _children_lock:
        for key in [key for key in _children if key[0] == os.getpid()]:
            _children.pop(key).end()


atexit.register(end_children)
