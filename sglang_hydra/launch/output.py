"""What a server writes: read line by line, keys blotted out, shown, logged within bounds, and the last of it kept."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

_LINE_LIMIT = 1 << 16
_LOG_LIMIT = 32 << 20
_TAIL_LINES = 40
# Blotting out every "a" would hide the log and not the key.
_SHORTEST_SECRET = 4
_MASK = b"***"


class BoundedLog:
    """A log file of at most ``limit`` bytes; when it is full it becomes ``<name>.1`` and a new one begins."""

    def __init__(self, path: Path, limit: int = _LOG_LIMIT) -> None:
        self._path, self._limit = path, limit
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._size = 0

    def write(self, line: bytes) -> None:
        if self._size + len(line) > self._limit and self._size:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file, self._size = self._path.open("wb"), 0
        self._file.write(line)
        self._file.flush()
        self._size += len(line)

    def close(self) -> None:
        self._file.close()


class Output:
    """Follows a server's stdout and stderr, each in a thread, until they close.

    ``show`` gets the name of the stream and each finished line. ``milestone`` is the words of the last text of
    ``milestones`` that was seen. A text that is overwritten in place (a progress bar) is neither shown nor logged.
    """

    def __init__(
        self,
        show: Callable[[str, str], None],
        milestones: Mapping[str, str],
        log: BoundedLog | None = None,
        secret: str | None = None,
    ) -> None:
        self._show, self._milestones, self._log = show, milestones, log
        self._secrets = _spellings(secret)
        self._hold_back = max((len(spelling) for spelling in self._secrets), default=1) - 1
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.milestone = ""
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def follow(self, name: str, pipe: IO[bytes]) -> None:
        thread = threading.Thread(target=self._read, args=(name, pipe), name=f"server-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self, timeout_s: float) -> None:
        """Waits for what is still in the pipes, at most ``timeout_s`` seconds for each, and closes the log."""
        for thread in self._threads:
            thread.join(timeout_s)
        with self._lock:
            if self._log is not None:
                self._log.close()
                self._log = None

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        pending = b""
        while chunk := os.read(pipe.fileno(), 1 << 16):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._line(name, self._blot(line))
            if len(pending) > _LINE_LIMIT + self._hold_back:
                pending = self._blot(pending)
                cut = max(0, len(pending) - self._hold_back)
                if cut:
                    self._line(name, pending[:cut])
                pending = pending[cut:]
        if pending:
            self._line(name, self._blot(pending))
        pipe.close()

    def _blot(self, line: bytes) -> bytes:
        for spelling in self._secrets:
            line = line.replace(spelling, _MASK)
        return line

    def _line(self, name: str, line: bytes) -> None:
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
        text = line.decode("utf-8", "replace")
        with self._lock:
            for sign, words in self._milestones.items():
                if sign in text:
                    self.milestone = words
            self.tail.append(text)
            if self._log is not None:
                self._log.write(line + b"\n")
            self._show(name, text)


def _spellings(secret: str | None) -> list[bytes]:
    """The ways in which programs print a text, longest first."""
    if secret is None or len(secret) < _SHORTEST_SECRET:
        return []
    spelled = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]}
    return sorted((text.encode() for text in spelled), key=len, reverse=True)
