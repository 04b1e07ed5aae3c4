"""A generated file: written, or held against what would be written now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_or_check(file: Path, fresh: str, arguments: Sequence[str]) -> int:
    """Writes ``fresh`` into ``file``. With ``--check`` among ``arguments`` it writes nothing and says so where the file
    holds something else. Returns the exit code: 1 for a stale file."""
    if "--check" not in arguments:
        file.write_text(fresh, encoding="utf-8")
        return 0
    stale = not file.is_file() or file.read_text(encoding="utf-8") != fresh
    if stale:
        print(f"{file.name} is stale: make generate")
    return int(stale)
