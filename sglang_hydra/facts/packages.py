"""Which packages an interpreter has, read from their metadata on disk: nothing of them is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from sglang_hydra.facts.environments import find_python
from sglang_hydra.facts.installed import interpreter_paths
from sglang_hydra.facts.machine_cache import once
from sglang_hydra.facts.trust import may_start

__all__ = ["Packages", "find_python", "installed", "normalised"]

_METADATA = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info", re.IGNORECASE)


class Packages(NamedTuple):
    """``versions`` maps normalised distribution names to versions. ``problem`` says why they could not be read."""

    versions: dict[str, str]
    problem: str | None = None


def installed(python: str | None) -> Packages:
    """The distributions that ``python`` (None: ours) would find."""
    # What may be started may change: serve starts what its plan names.
    return once(("packages", python, may_start(python)), lambda: _installed(python))


def _installed(python: str | None) -> Packages:
    path = find_python(python)
    if path is None:
        return Packages({}, f"engine.python={python} is not a program here")
    folders = interpreter_paths(path)
    if not folders:
        unasked = f"{python} was not asked, as a file names it and nobody typed it"
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
