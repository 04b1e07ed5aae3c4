"""Writes a server's log with bounded size, never stops the server for it, and reads it while it grows."""

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
"""Bytes of one file; a log has at most three."""

_RETRY_S = 5.0


class BoundedLog:
    """A log in at most three files of ``limit`` bytes each.

    A full file becomes ``<name>.1``, so the newest lines always exist; the first full file also stays as
    ``<name>.start``, because it shows the server's startup. If the disk is full or gone, lines are dropped and counted
    in ``lost``, ``problem`` says why, and writing is retried every few seconds."""

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
        waits = self._file is None and time.monotonic() < self._retry_at
        if waits or not self._attempt(line):
            self.lost += 1
            self._gap += 1

    def close(self) -> None:
        """Closes the log; later lines are dropped."""
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
        # Unbuffered, so that a failed write fails here. Appends, because others may truncate the log (logrotate's
        # copytruncate) or write to it.
        self._file = os.fdopen(os.open(self.path, self._flags, 0o666), "wb", buffering=0)
        self._flags &= ~os.O_TRUNC
        self._size = os.fstat(self._file.fileno()).st_size
        if self._gap:
            self._put(f"\n[{self._gap} lines are missing here: {self.problem}]\n".encode())
            self._gap = 0

    def _rotate(self) -> None:
        start, older = older_files(self.path)
        self._close()
        # A hard link; a file system without links keeps only the newest lines.
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


def older_files(path: Path) -> tuple[Path, Path]:
    """Returns the paths of a log's full files: the first one, and the newest one, which may be the same file."""
    return path.with_name(f"{path.name}.start"), path.with_name(f"{path.name}.1")


def log_files(path: Path) -> list[Path]:
    """Returns the existing files of a log, in the order of their lines."""
    found: list[Path] = []
    for file in (*older_files(path), path):
        with contextlib.suppress(OSError):
            if file.exists() and not any(file.samefile(other) for other in found):
                found.append(file)
    return found


# Two system calls separate the renaming of a full file from the new file.
_TURNING_S = 1.0
_LOOK_S = 0.01
_NOT_SEEN = (-1, -1)


@contextlib.contextmanager
def opened_log(path: Path) -> Iterator[list[BinaryIO]]:
    """Yields the open files of a log in the order of their lines; none for no log. Later renames do not affect them."""
    start, older = older_files(path)
    with contextlib.ExitStack() as stack:
        begun, before = _opened(start, stack), _opened(older, stack)
        newest = _newest(path, stack, turning=bool(begun or before))
        # The newest file of the first look may have been renamed since.
        after = _opened(older, stack)
        found: dict[tuple[int, int], BinaryIO] = {}
        for file in (begun, before, after, newest):
            if file is not None:
                found.setdefault(_identity(file), file)
        yield list(found.values())


def log_lines(path: Path) -> Iterator[bytes]:
    """Yields each line of a log without its line end; nothing for no log."""
    with opened_log(path) as files:
        for file in files:
            for line in file:
                yield line.rstrip(b"\r\n")


class LogTail:
    """Follows the new lines of a log, also across its rotation to ``<name>.1``. Opens the file at each look, because
    only then a network file system fetches new content."""

    def __init__(self, path: Path) -> None:
        self._path, self._file, self._at, self._pending = path, _NOT_SEEN, 0, b""

    def last(self, count: int) -> list[str]:
        """Returns the last ``count`` existing lines; ``lines`` continues after them."""
        with opened_log(self._path) as files:
            if not files:
                return []
            self._file = _identity(files[-1])
            self._at = max(0, os.fstat(files[-1].fileno()).st_size - count * 1024)
        return list(self.lines())[-count:]

    def lines(self) -> Iterator[str]:
        """Yields each line that was completed since the last look."""
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
        """Returns the files with unread lines, from the file of the last look on. If that is gone, returns the newest
        two. At the first look, returns only the newest file."""
        if self._file == _NOT_SEEN:
            return files[-1:]
        known = [_identity(file) for file in files]
        return files[known.index(self._file) :] if self._file in known else files[-2:]

    def rest(self) -> Iterator[str]:
        """Yields the new lines, and the last one even if it is incomplete."""
        yield from self.lines()
        if self._pending:
            yield self._pending.decode("utf-8", "replace")
            self._pending = b""


def _newest(path: Path, stack: contextlib.ExitStack, *, turning: bool) -> BinaryIO | None:
    """Returns the current file of the log; waits for it during a rotation."""
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
