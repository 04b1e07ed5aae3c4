"""Files that are there whole or not at all, also after a crash, a full disk or on a shared file system."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

_LONGEST_NAME = 200


def write_whole(path: Path, content: str, mode: int = 0o666) -> None:
    """Writes ``path``, in place of what is there: under a name of its own beside it, flushed to the disk, renamed.
    ``mode`` is what may be done with it, less the umask.

    Raises OSError where it cannot be written; what was there is then untouched, and nothing else is left.
    """
    with draft(path, content, mode) as written:
        written.replace(path)
    flush_folder(path.parent)


@contextlib.contextmanager
def draft(path: Path, content: str, mode: int = 0o666) -> Iterator[Path]:
    """Yields a file beside ``path`` with the content, on the disk; it is removed at the end unless it was renamed."""
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
    """Writes a folder to the disk: only then a rename lasts. Some file systems need not."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
