"""Reading a server's log while it is written: its files turn over, and for a moment the newest has no name."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sglang_hydra.run.launch.log import older_files
from sglang_hydra.text.file_text import open_plain

# Two calls of the system lie between the two names of a full file.
_TURNING_S = 1.0
_LOOK_S = 0.01
_NOT_SEEN = (-1, -1)


@contextlib.contextmanager
def opened_log(path: Path) -> Iterator[list[BinaryIO]]:
    """The files of a log in the order of their lines, none where there is no log. They are open: what becomes of their
    names meanwhile changes nothing."""
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
    """Each line of a log, without its end; nothing where there is no log."""
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
        """The last lines that are there already; new ones are counted from here."""
        with opened_log(self._path) as files:
            if not files:
                return []
            self._file = _identity(files[-1])
            self._at = max(0, os.fstat(files[-1].fileno()).st_size - count * 1024)
        return list(self.lines())[-count:]

    def lines(self) -> Iterator[str]:
        """Each line that was finished since the last look."""
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
        """From the file of the last look on; where that is gone, all that came after the log's beginning. What was
        written before the first look does not count."""
        if self._file == _NOT_SEEN:
            return files[-1:]
        known = [_identity(file) for file in files]
        return files[known.index(self._file) :] if self._file in known else files[-2:]

    def rest(self) -> Iterator[str]:
        """The same, and the last line if it was cut off."""
        yield from self.lines()
        if self._pending:
            yield self._pending.decode("utf-8", "replace")
            self._pending = b""


def _newest(path: Path, stack: contextlib.ExitStack, *, turning: bool) -> BinaryIO | None:
    """The file that is written to now; one that turns over is waited for."""
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
