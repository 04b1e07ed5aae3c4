"""Shows the progress of a command in one line of a terminal and erases it at the end; piped output shows nothing."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

SILENT_S = 1.0
"""Shorter work shows no progress."""
_EVERY_S = 0.25
_MIB, _BLOCK = 2**20, 512
Item = TypeVar("Item")


@contextlib.contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Yields a function that replaces the shown text. It writes after 1 s, at most every 0.25 s."""
    stream = sys.stderr
    if not stream.isatty():
        yield lambda text: None
        return
    due = time.monotonic() + SILENT_S

    def show(text: str) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _EVERY_S
            stream.write(f"\r\x1b[K{text}")
            stream.flush()

    try:
        yield show
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def counted(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """Yields the items and shows how many of ``total`` are done, with the time left."""
    began = time.monotonic()
    with progress_line() as show:
        for number, item in enumerate(items):
            left = (time.monotonic() - began) / number * (total - number) if number else None
            show(f"{number} of {total} {what}" + (f", {left:.0f} s left" if left is not None else ""))
            yield item


@contextlib.contextmanager
def growing(folder: Path, total: int, what: str) -> Iterator[None]:
    """Shows how many of ``total`` bytes are in ``folder``, and the seconds since the start, while the block runs."""
    ended = threading.Event()
    began = time.monotonic()

    def watch(show: Callable[[str], None]) -> None:
        while not ended.wait(_EVERY_S):
            with contextlib.suppress(OSError):  # a file may go away while it is looked at
                size = sum(file.stat().st_blocks * _BLOCK for file in folder.rglob("*"))
                came = f"{min(size, total) / _MIB:.1f} of {total / _MIB:.1f} MiB"
                show(f"{what}: {came}, {time.monotonic() - began:.0f} s")

    with progress_line() as show:
        watcher = threading.Thread(target=watch, args=(show,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
