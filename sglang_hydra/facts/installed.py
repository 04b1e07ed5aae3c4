"""Finds the packages in an interpreter's environment without importing them, starting as little as possible."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.machinery import PathFinder
from typing import NamedTuple

from sglang_hydra.facts.environments import MOST_BYTES, find_python, is_read_from_disk, package_folders, paths_on_disk
from sglang_hydra.facts.machine_cache import once
from sglang_hydra.facts.trust import may_start
from sglang_hydra.text.file_text import read_text

_TIMEOUT_S = 20.0
_METADATA = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info", re.IGNORECASE)


def interpreter_paths(python: str | None = None) -> tuple[str, ...]:
    """Returns the folders that ``python`` imports from; None means this interpreter.

    A virtual environment is read from its layout. Another interpreter is started once where that is allowed
    (``sglang_hydra.facts.trust``), else read from the folders beside it. Empty when nothing can be known."""
    found = find_python(python)
    if found is None:
        return ()
    if found == os.path.abspath(sys.executable):
        return tuple(path for path in sys.path if path)
    if is_read_from_disk(found):
        return package_folders(found, ("site-packages",))
    return _asked_paths(found) if may_start(found) else paths_on_disk(found)


def find_package(name: str, paths: Sequence[str]) -> bool:
    """Returns whether ``import name`` would find a package or module on ``paths`` (importlib's rules, no import)."""
    return PathFinder.find_spec(name, list(paths)) is not None


def torch_build(paths: Sequence[str]) -> Mapping[str, str | None] | None:
    """Returns the accelerators of the installed torch build ({cuda, hip, xpu} to a version or None), read from the text
    of ``torch/version.py``; None without torch on ``paths``."""
    for folder in paths:
        try:
            text = read_text(os.path.join(folder, "torch", "version.py"), MOST_BYTES)
        except (OSError, ValueError):
            continue
        stated = dict(re.findall(r"^(cuda|hip|xpu)\s*(?::[^=\n]*)?=\s*(\S+)", text, re.MULTILINE))
        return {
            name: None if stated.get(name, "None") == "None" else stated[name].strip("'\"")
            for name in ("cuda", "hip", "xpu")
        }
    return None


def _asked_paths(python: str) -> tuple[str, ...]:
    import subprocess

    # -c puts the working directory first; sys is built in, so that nothing is imported from there.
    command = [python, "-c", "import sys; print('\\n'.join(path for path in sys.path if path))"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    return tuple(line for line in answer.stdout.splitlines() if line)


class Packages(NamedTuple):
    """``versions`` maps normalised distribution names to versions. ``problem`` says why they are unreadable."""

    versions: dict[str, str]
    problem: str | None = None


def installed(python: str | None) -> Packages:
    """Returns the distributions in the environment of ``python`` (None: ours)."""
    # The key includes may_start, because it may change: serve grants the programs of its plan.
    return once(("packages", python, may_start(python)), lambda: _installed(python))


def _installed(python: str | None) -> Packages:
    path = find_python(python)
    if path is None:
        return Packages({}, f"engine.python={python} is not a program here")
    folders = interpreter_paths(path)
    if not folders:
        unasked = f"{python} was not asked, because a file names it and you did not type it"
        return Packages(
            {}, f"engine.python={python} is no Python interpreter that runs here" if may_start(path) else unasked
        )
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
    """Returns the distributions in one folder. ``changed`` is its modification time, a cache key."""
    found: dict[str, str] = {}
    for name in os.listdir(folder):
        match = _METADATA.fullmatch(name)
        if match:
            found.setdefault(normalised(match["name"]), match["version"])
    return found


def normalised(name: str) -> str:
    """Returns a distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
