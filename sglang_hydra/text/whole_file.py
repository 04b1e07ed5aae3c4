"""A file that is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

_LONGEST_NAME = 200


def write_whole(path: Path, content: str, mode: int = 0o666) -> None:
    """Writes ``path``, in place of what is there: under a name of its own beside it, then renamed. ``mode`` is what
    may be done with it, less the umask.

    Raises OSError where it cannot be written; what was there is then untouched, and nothing else is left.
    """
    draft = path.with_name(f".{path.name[:_LONGEST_NAME]}.{os.getpid()}.part")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(content)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
