"""A generated file: written, or held against what would be written now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def write_or_check(file: Path, fresh: str, arguments: Sequence[str]) -> int:
    """Writes ``fresh`` into ``file``. With ``--check`` among ``arguments`` it writes nothing and says so where the file
    holds something else. Returns the exit code: 1 for a stale file."""
    return write_or_check_files({file: fresh}, arguments)


def write_or_check_files(fresh: Mapping[Path, str], arguments: Sequence[str], left_over: Sequence[Path] = ()) -> int:
    """The same for several files. ``left_over`` are files that lie beside them and should not."""
    if "--check" not in arguments:
        for file, content in fresh.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        return 0
    stale = [file for file, text in fresh.items() if not file.is_file() or file.read_text(encoding="utf-8") != text]
    for file in stale:
        print(f"{file.name} is stale: make generate")
    for file in left_over:
        print(f"{file.name} is left over: delete it")
    return int(bool(stale or left_over))
