"""A child process that runs one release on one kind of machine, kept until its parent ends."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_hydra.upstream.records import Record

START_S = 120.0
CASE_S = 60.0
MOST_CHILDREN = 2
_HERE = Path(__file__).resolve().parent
_MARGIN_S = 10.0
_MAY_CHANGE = ("memory_mib", "count", "name")
"""What may change from case to case within one child; everything else may have been decided at its import."""
_NEEDED_TO_START = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "SYSTEMROOT")


class ChildFailed(Exception):
    """The child gave no answer; the text is why, in a clause."""


class Child:
    """One child. ``places`` are the folders that have the release and its libraries, the release's own one first;
    ``facts`` its machine. With ``python``, the interpreter to run, they are those of an environment, where no byte code
    is written. Raises ChildFailed where the release cannot be imported."""

    def __init__(
        self,
        record: Record,
        places: Sequence[Path],
        facts: Mapping[str, Any],
        limit_s: float = CASE_S,
        python: str | None = None,
    ) -> None:
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the child has failed
        options = {
            "version": record.version,
            "release": str(places[0]),
            "folders": [str(place) for place in places[1:]],
            "libraries": [wheel.name for wheel in record.libraries],
            "real_parts": record.real_parts,
            "parent": os.getpid(),
            "limit_s": max(limit_s, START_S),
        }
        program = (
            f"import sys; sys.path.insert(0, {str(_HERE)!r}); from child.main import main; "
            "del sys.path[0]; sys.exit(main())"
        )
        interpreter = [python, "-B"] if python else [sys.executable]
        try:
            self._process = subprocess.Popen(
                [*interpreter, "-I", "-S", "-X", "utf8", "-W", "ignore", "-c", program, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=str(places[0]),
                env={name: os.environ[name] for name in _NEEDED_TO_START if name in os.environ},
                start_new_session=True,  # Ctrl-C is for the parent, which ends it
            )
        except OSError as failure:
            raise ChildFailed(f"{interpreter[0]} cannot be run: {failure.strerror or failure}") from failure
        try:
            self.greeting = self._exchange(facts, START_S)
        except ChildFailed:
            self.end()
            raise
        if "version" not in self.greeting:
            self.end()
            raise ChildFailed(str(self.greeting.get("unanswered", "it did not start")))

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one case. Raises ChildFailed where the child ends, or takes longer than its limit."""
        with self._lock:
            return self._exchange(case, self.limit_s)

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

    def _exchange(self, record: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """One line there and one back."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(record).encode() + b"\n")
            stdin.flush()
        except OSError as failure:
            raise self._failed("it ended before it was asked") from failure
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
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failed(self, why: str) -> ChildFailed:
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
        return ChildFailed(f"{why}: {lines[-1][:300]}" if lines else why)


_children: dict[tuple[int, str, tuple[Path, ...], str], Child] = {}
_children_lock = threading.Lock()


def child_for(record: Record, places: Sequence[Path], facts: Mapping[str, Any], python: str | None = None) -> Child:
    """The child for this release and this kind of machine, started when it is first needed. Raises ChildFailed."""
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
