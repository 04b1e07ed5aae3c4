"""Writes the files of ``-o``: new files, one for each server; or prints their text without it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import reason_of
from sglang_hydra.text.words import without_secret_forms


def paths_of(output: Path | None, names: Sequence[str]) -> list[Path]:
    """Returns a path for each server, with the suffix of ``output`` or .yaml; empty without ``output``."""
    if output is None:
        return []
    suffix = output.suffix or ".yaml"
    if len(names) == 1:
        return [output.with_suffix(suffix)]
    own = [re.sub(r"[^\w.-]", "_", name)[:80] or "server" for name in names]
    return [output.with_name(f"{output.stem}-{name}{suffix}") for name in own]


def refuse_existing(paths: Sequence[Path], id: str) -> None:
    """Raises ConfigError with ``id`` if one of the files exists."""
    there = [path for path in paths if os.path.lexists(path)]
    if there:
        message = f"{', '.join(map(str, there))} exists already; nothing was written"
        raise ConfigError.of(id, message, hint="another -o FILE, or remove it first")


def write_new(path: Path, content: str, id: str) -> None:
    """Writes a new file; makes a script executable. Raises ConfigError with ``id`` if that is impossible."""
    try:
        with path.open("x", encoding="utf-8", errors="replace", newline="") as file:
            file.write(without_secret_forms(content))
        if path.suffix in (".sh", ".bash"):
            mode = path.stat().st_mode
            path.chmod(mode | (mode & 0o444) >> 2)
    except (OSError, ValueError) as failure:
        if not isinstance(failure, FileExistsError):
            with contextlib.suppress(OSError, ValueError):
                path.unlink()  # on a full disk: a part of it
        hint = f"mkdir -p {shlex.quote(str(path.parent))}, or -o FILE in a folder that is there"
        raise ConfigError.of(id, f"{path} cannot be written: {reason_of(failure)}", hint=hint) from failure


def print_content(content: str) -> None:
    """Prints the content of a file as UTF-8, in any terminal encoding."""
    content = without_secret_forms(content)
    sys.stdout.flush()
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(content.encode("utf-8", "replace"))
    else:
        sys.stdout.write(content)
    sys.stdout.flush()
