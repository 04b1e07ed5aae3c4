"""A server's log file: bounded in size, and never a reason for the server to stop."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from pathlib import Path
from typing import BinaryIO

FILE_LIMIT = 16 << 20
"""Bytes of one file; there are at most three."""

_RETRY_S = 5.0


class BoundedLog:
    """A log of at most ``limit`` bytes a file, in three files.

    A full file becomes ``<name>.1``, so the newest lines are always there; the first one also stays as
    ``<name>.start``: it says how the server was started. Where the disk is full or gone, lines are dropped and
    counted in ``lost``, ``problem`` says why, and writing is tried again every few seconds.
    """

    def __init__(self, path: Path, limit: int = FILE_LIMIT) -> None:
        self.path, self._limit = path, limit
        self.problem: str | None = None
        self.lost = 0
        self._file: BinaryIO | None = None
        self._size = 0
        self._retry_at = 0.0
        self._gap = 0
        self._flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC
        for old in older_files(path):
            with contextlib.suppress(OSError):
                old.unlink()
        self._attempt(b"")

    def write(self, line: bytes) -> None:
        if self._file is None and time.monotonic() < self._retry_at:
            self._drop()
            return
        if not self._attempt(line):
            self._drop()

    def close(self) -> None:
        """Ends the log; what is written to it afterwards is dropped."""
        self._close()
        self._retry_at = math.inf

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _attempt(self, line: bytes) -> bool:
        try:
            if self._file is None:
                self._open()
            if self._size + len(line) > self._limit and self._size:
                self._rotate()
            self._put(line)
        except OSError as failure:
            self.problem = failure.strerror or str(failure)
            self._retry_at = time.monotonic() + _RETRY_S
            self._close()
            return False
        return True

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: what is written is in the file, and what is not has failed here. Always at its end: a log may be
        # cut short (logrotate's copytruncate) or written to by others.
        self._file = os.fdopen(os.open(self.path, self._flags, 0o666), "wb", buffering=0)
        self._flags &= ~os.O_TRUNC
        self._size = os.fstat(self._file.fileno()).st_size
        if self._gap:
            note = f"\n[{self._gap} lines are missing here: {self.problem}]\n".encode()
            self._put(note)
            self._gap = 0

    def _rotate(self) -> None:
        start, older = older_files(self.path)
        self._close()
        # A second name for it; a file system without such names keeps the newest lines alone.
        with contextlib.suppress(OSError):
            if not start.exists():
                os.link(self.path, start)
        self.path.replace(older)
        self._open()

    def _put(self, content: bytes) -> None:
        assert self._file is not None
        written = self._file.write(content) or 0
        self._size += written
        if written < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _drop(self) -> None:
        self.lost += 1
        self._gap += 1


def older_files(path: Path) -> tuple[Path, Path]:
    """Where the full files of a log are: the first one, and the newest, which may be the same."""
    return path.with_name(f"{path.name}.start"), path.with_name(f"{path.name}.1")


def log_files(path: Path) -> list[Path]:
    """The files of a log that are there, in the order of their lines."""
    found: list[Path] = []
    for file in (*older_files(path), path):
        with contextlib.suppress(OSError):
            if file.exists() and not any(file.samefile(other) for other in found):
                found.append(file)
    return found
