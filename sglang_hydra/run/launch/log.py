"""A server's log: bounded in size, never a reason for the server to stop, and read while it is written."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sglang_hydra.text.file_text import open_plain

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
    """Returns where the full files of a log are: the first one, and the newest, which may be the same."""
    return path.with_name(f"{path.name}.start"), path.with_name(f"{path.name}.1")


def log_files(path: Path) -> list[Path]:
    """Returns the files of a log that are there, in the order of their lines."""
    found: list[Path] = []
    for file in (*older_files(path), path):
        with contextlib.suppress(OSError):
            if file.exists() and not any(file.samefile(other) for other in found):
                found.append(file)
    return found


# Two calls of the system lie between the two names of a full file.
_TURNING_S = 1.0
_LOOK_S = 0.01
_NOT_SEEN = (-1, -1)


@contextlib.contextmanager
def opened_log(path: Path) -> Iterator[list[BinaryIO]]:
    """Yields the files of a log in the order of their lines, none where there is no log. They are open: what becomes of
    their names meanwhile changes nothing."""
    start, older = older_files(path)
    with contextlib.ExitStack() as stack:
        begun, before = _opened(start, stack), _opened(older, stack)
        newest = _newest(path, stack, turning=bool(begun or before))
        # What was the newest at the first look may have become the older one.
        after = _opened(older, stack)
        found: dict[tuple[int, int], BinaryIO] = {}
        for file in (begun, before, after, newest):
            if file is not None:
                found.setdefault(_identity(file), file)
        yield list(found.values())


def log_lines(path: Path) -> Iterator[bytes]:
    """Yields each line of a log, without its end; nothing where there is no log."""
    with opened_log(path) as files:
        for file in files:
            for line in file:
                yield line.rstrip(b"\r\n")


class LogTail:
    """The lines that are added to a log, across its turning over to ``<name>.1``. The file is opened at each look: that
    is when a network file system asks for what is new."""

    def __init__(self, path: Path) -> None:
        self._path, self._file, self._at, self._pending = path, _NOT_SEEN, 0, b""

    def last(self, count: int) -> list[str]:
        """Returns the last lines that are there already; new ones are counted from here."""
        with opened_log(self._path) as files:
            if not files:
                return []
            self._file = _identity(files[-1])
            self._at = max(0, os.fstat(files[-1].fileno()).st_size - count * 1024)
        return list(self.lines())[-count:]

    def lines(self) -> Iterator[str]:
        """Yields each line that was finished since the last look."""
        with opened_log(self._path) as files:
            for file in self._unread(files):
                if _identity(file) != self._file:
                    self._file, self._at = _identity(file), 0
                if os.fstat(file.fileno()).st_size < self._at:
                    self._at = 0  # somebody has cut it short
                file.seek(self._at)
                content = file.read()
                self._at += len(content)
                *whole, self._pending = (self._pending + content).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in whole)

    def _unread(self, files: Sequence[BinaryIO]) -> Sequence[BinaryIO]:
        """Returns the files with unread lines, from that of the last look on; where that is gone, all that came after
        the log's beginning. What was written before the first look does not count."""
        if self._file == _NOT_SEEN:
            return files[-1:]
        known = [_identity(file) for file in files]
        return files[known.index(self._file) :] if self._file in known else files[-2:]

    def rest(self) -> Iterator[str]:
        """Yields the same, and the last line if it was cut off."""
        yield from self.lines()
        if self._pending:
            yield self._pending.decode("utf-8", "replace")
            self._pending = b""


def _newest(path: Path, stack: contextlib.ExitStack, *, turning: bool) -> BinaryIO | None:
    """Returns the file that is written to now; one that turns over is waited for."""
    deadline = time.monotonic() + _TURNING_S
    while True:
        file = _opened(path, stack)
        if file is not None or not turning or time.monotonic() > deadline:
            return file
        time.sleep(_LOOK_S)


def _opened(path: Path, stack: contextlib.ExitStack) -> BinaryIO | None:
    try:
        return stack.enter_context(open_plain(path))
    except (OSError, ValueError):
        return None


def _identity(file: BinaryIO) -> tuple[int, int]:
    about = os.fstat(file.fileno())
    return about.st_dev, about.st_ino
