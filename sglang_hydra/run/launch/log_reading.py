"""Reading a server's log while it is written: its files turn over, and for a moment the newest has no name."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sglang_hydra.run.launch.log import older_files
from sglang_hydra.text.file_text import open_plain

# Two calls of the system lie between the two names of a full file.
_TURNING_S = 1.0
_LOOK_S = 0.01
_CHUNK = 1 << 16


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


class Tail:
    """The lines that are added to a log, across its turning over to ``<name>.1``.

    Raises OSError where there is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.ExitStack() as stack:
            self._file = _newest(path, stack, turning=True) or open_plain(path)
            stack.pop_all()
        self._pending = b""

    def last(self, count: int) -> list[bytes]:
        """The last lines that are there already; new ones are counted from here."""
        self._file.seek(max(0, os.fstat(self._file.fileno()).st_size - count * 1024))
        *whole, self._pending = self._file.read().split(b"\n")
        return whole[-count:]

    def close(self) -> None:
        self._file.close()

    def new(self) -> Iterator[bytes]:
        """Each whole line that was added since the last look."""
        yield from self._read()
        try:
            newest = open_plain(self._path)
        except OSError:
            return  # it turns over just now, or was removed
        if _identity(newest) == _identity(self._file):
            newest.close()
            return
        # What was written between our last look and the turn is still in the old file.
        yield from self._read()
        self._file.close()
        self._file = newest
        yield from self._read()

    def _read(self) -> Iterator[bytes]:
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)  # somebody has cut it short
        while chunk := self._file.read(_CHUNK):
            *whole, self._pending = (self._pending + chunk).split(b"\n")
            yield from whole


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
