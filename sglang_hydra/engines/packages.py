"""Which packages an interpreter has, read from their metadata on disk: nothing of them is imported."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from sglang_hydra.facts.once import once

_METADATA = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info", re.IGNORECASE)
_ASK_TIMEOUT_S = 30.0


class Packages(NamedTuple):
    """``versions`` maps normalised distribution names to versions. ``problem`` says why they could not be read."""

    versions: dict[str, str]
    problem: str | None = None


def find_python(python: str | None) -> str | None:
    """The interpreter's absolute path (None asks for ours); None where there is no such program.

    Links are kept: a virtual environment's ``python`` is one, and only its own place says which environment it is.
    """
    if not python:
        return sys.executable
    python = os.path.expanduser(python)
    if os.path.dirname(python):
        return os.path.abspath(python) if os.access(python, os.X_OK) and not os.path.isdir(python) else None
    return _on_path(python, os.environ.get("PATH"))


def _on_path(program: str, path: str | None) -> str | None:
    found = _looked_up(program, path)
    return found if found and os.access(found, os.X_OK) else _looked_up.__wrapped__(program, path)


@lru_cache(maxsize=16)
def _looked_up(program: str, path: str | None) -> str | None:
    import shutil

    return shutil.which(program, path=path)


def installed(python: str | None) -> Packages:
    """The distributions that ``python`` (None: ours) would find."""
    return once(("packages", python), lambda: _installed(python))


def _installed(python: str | None) -> Packages:
    path = find_python(python)
    if path is None:
        return Packages({}, f"engine.python={python} is not a program here")
    if path == sys.executable:
        return Packages(_versions(sys.path))
    folders = _venv_folders(path)
    if folders is None:
        folders = _ask(path)
    if folders is None:
        return Packages({}, f"engine.python={python} is no Python interpreter that runs here")
    return Packages(_versions(folders))


def _versions(folders: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in folders:
        try:
            changed = os.stat(folder or ".").st_mtime_ns
            inside = _versions_in(os.path.abspath(folder or "."), changed)
        except OSError:
            continue
        # The first folder on the path wins, as it does for an import.
        found = {**inside, **found}
    return found


@lru_cache(maxsize=64)
def _versions_in(folder: str, changed: int) -> Mapping[str, str]:
    """The distributions in one folder; it is read again when it has ``changed``, which every installation does."""
    found: dict[str, str] = {}
    for name in os.listdir(folder):
        match = _METADATA.fullmatch(name)
        if match:
            found.setdefault(normalised(match["name"]), match["version"])
    return found


def normalised(name: str) -> str:
    """A distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _venv_folders(python: str) -> Sequence[str] | None:
    """The site-packages of a virtual environment; None if this is none, or one that also sees its base's packages."""
    root = os.path.dirname(os.path.dirname(python))
    try:
        with open(os.path.join(root, "pyvenv.cfg"), encoding="utf-8") as file:
            settings = dict(line.strip().lower().split(" = ", 1) for line in file if " = " in line)
    except OSError:
        return None
    if settings.get("include-system-site-packages") == "true":
        return None
    import glob

    return glob.glob(os.path.join(glob.escape(root), "lib*", "python3*", "site-packages")) or None


def _ask(python: str) -> Sequence[str] | None:
    """Its import path, told by itself: one child that imports nothing but ``sys``."""
    import subprocess

    try:
        answer = subprocess.run(
            [python, "-c", "import sys; print('\\n'.join(sys.path))"],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return [line for line in answer.stdout.splitlines() if line]
