"""Where the configuration files of this package lie, and how a path is shown to people."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path


@functools.lru_cache(maxsize=1)
def conf_dir() -> Path:
    """Returns the folder of the YAML files: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    packaged = package / "conf"
    return packaged if packaged.is_dir() else package.parent / "conf"


def shown_path(file: str) -> str:
    """Returns a path as one would type it here: relative when it lies below our conf/ or the working directory."""
    bases = [conf_dir().parent]
    with contextlib.suppress(OSError):  # the working directory may be gone
        bases.insert(Path(file).is_relative_to(conf_dir()), Path.cwd())  # an environment may lie below it
    for base in bases:
        try:
            return str(Path(file).relative_to(base))
        except ValueError:
            continue
    return file


def file_of(word: str) -> str:
    """Returns the file that a word names: FILE of FILE#NAME, where NAME is a server in it."""
    return word if "#" not in word or os.path.exists(word) else word.rpartition("#")[0]
