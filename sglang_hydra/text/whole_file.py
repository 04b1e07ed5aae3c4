"""Writes files atomically: whole or not at all, also after a crash, on a full disk or a shared file system."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

_LONGEST_NAME = 200


def write_whole(path: Path, content: str, mode: int = 0o666) -> None:
    """Replaces ``path``: writes a file beside it, flushes that to the disk and renames it. ``mode`` is reduced by the
    umask.

    Raises OSError where it cannot write; the old file is then unchanged, and no other file is left."""
    with draft(path, content, mode) as written:
        written.replace(path)
    flush_folder(path.parent)


@contextlib.contextmanager
def draft(path: Path, content: str, mode: int = 0o666) -> Iterator[Path]:
    """Yields a file with ``content`` beside ``path``, flushed to the disk; removes it at the end unless renamed."""
    file = path.with_name(f".{path.name[:_LONGEST_NAME]}.{secrets.token_hex(4)}.part")
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        yield file
    finally:
        file.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Flushes a folder to the disk, which makes a rename durable. Ignores OSError: some file systems need no flush."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
