"""Finds this package's configuration folder, and shortens paths for people."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

SUFFIXES = (".yaml", ".yml", ".json")
"""The endings of experiments and records."""


@functools.lru_cache(maxsize=1)
def conf_dir() -> Path:
    """Returns the folder of the YAML files: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    packaged = package / "conf"
    return packaged if packaged.is_dir() else package.parent / "conf"


def shown_path(file: str) -> str:
    """Shortens a path to what one would type here: relative where it is below our conf/ or the working directory."""
    bases = [conf_dir().parent]
    with contextlib.suppress(OSError):  # the working directory may be gone
        bases.insert(Path(file).is_relative_to(conf_dir()), Path.cwd())  # an environment may be below it
    for base in bases:
        try:
            return str(Path(file).relative_to(base))
        except ValueError:
            continue
    return file


def file_of(word: str) -> str:
    """Returns the FILE of ``FILE#NAME``, where NAME is a server in the file; else the whole word."""
    return word if "#" not in word or os.path.exists(word) else word.rpartition("#")[0]
