"""Reads an interpreter's environment from disk: its program, settings and package folders. Runs nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache

from sglang_hydra.text.file_text import read_text

MOST_BYTES = 1 << 20


_MOST_LINES = 1000
"""The most lines to read of a .pth file. Editable installs write one or a few."""


def find_python(python: str | None) -> str | None:
    """Returns the interpreter's absolute path (None means ours), or None where there is no such program.

    Links are kept: the ``python`` of a virtual environment is a link, and only its own place identifies the
    environment."""
    if not python:
        return sys.executable
    python = os.path.expanduser(python)
    if os.path.dirname(python):
        return os.path.abspath(python) if os.access(python, os.X_OK) and not os.path.isdir(python) else None
    found = _looked_up(python, os.environ.get("PATH"))
    return found if found and os.access(found, os.X_OK) else _looked_up.__wrapped__(python, os.environ.get("PATH"))


def is_read_from_disk(python: str) -> bool:
    """Returns whether an interpreter's folders are known without starting it: an isolated virtual environment."""
    settings = environment_settings(python)
    return bool(settings) and not _sees_its_base(settings) and bool(package_folders(python, ("site-packages",)))


def environment_settings(python: str) -> Mapping[str, str]:
    """Returns the pyvenv.cfg of a virtual environment's ``python``, keys in lower case; empty if there is none."""
    # The path stays unresolved: resolving a venv's python would lead to its base interpreter.
    root = os.path.dirname(os.path.dirname(python))
    try:
        lines = read_text(os.path.join(root, "pyvenv.cfg"), MOST_BYTES).splitlines()
    except (OSError, ValueError):
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


@lru_cache(maxsize=16)
def _looked_up(program: str, path: str | None) -> str | None:
    import shutil

    return shutil.which(program, path=path)


def _sees_its_base(settings: Mapping[str, str]) -> bool:
    return settings.get("include-system-site-packages", "").lower() == "true"


def paths_on_disk(python: str) -> tuple[str, ...]:
    """Guesses an interpreter's import folders from its place; empty where it is not in a bin folder."""
    if os.path.basename(os.path.dirname(python)) != "bin":
        return ()
    settings = environment_settings(python)
    own = package_folders(python, ("site-packages", "dist-packages"))
    home = settings.get("home") if _sees_its_base(settings) else None
    if home is None or not os.path.isabs(home):
        return own
    return (*own, *package_folders(os.path.join(home, "python"), ("site-packages", "dist-packages")))


def package_folders(python: str, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the package folders below the root of ``python``, with those that .pth files add."""
    import glob

    root = glob.escape(os.path.dirname(os.path.dirname(python)))
    found = [path for name in names for path in sorted(glob.glob(os.path.join(root, "lib*", "python3*", name)))]
    return tuple(path for folder in found for path in (folder, *_pth_paths(folder)))


def _pth_paths(folder: str) -> list[str]:
    """Returns the folders that .pth files add, as editable installs do. Does not run their import lines."""
    found: list[str] = []
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".pth"))
    except OSError:
        return found
    for name in names:
        try:
            text = read_text(os.path.join(folder, name), MOST_BYTES, errors="replace")
        except OSError:
            continue
        lines = [line.strip() for line in text.splitlines()[:_MOST_LINES] if "\0" not in line]
        paths = [os.path.join(folder, line) for line in lines if line and not line.startswith(("#", "import "))]
        found += [path for path in paths if os.path.isdir(path)]
    return found
