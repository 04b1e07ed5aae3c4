"""Module names of earlier versions, found under their names of today.

A Slurm job or a sweep's job that was submitted before modules moved holds the old names of its functions and classes.
"""

from __future__ import annotations

import json
import sys
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_PACKAGE = "sglang_hydra."


def spec_of(name: str) -> ModuleSpec | None:
    """The import spec of a module under its old name; None for a name that no earlier version had."""
    new = name_of_today(name)
    return ModuleSpec(name, _Moved(new)) if new else None  # type: ignore[arg-type]


def name_of_today(name: str) -> str | None:
    """The name that a module of an earlier version has today; None where it has none."""
    words = name.removeprefix(_PACKAGE).split(".")
    for count in range(len(words), 0, -1):
        found = table().get(".".join(words[:count]))
        if found is not None:
            return _PACKAGE + ".".join([found, *words[count:]])
    return None


class _Moved:
    """A loader that puts the module of today in the place of the old name.

    A package keeps a stand-in of its own, without a folder: a file found there would be a second copy of a module.
    """

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        real = import_module(self._new)
        if not hasattr(real, "__path__"):
            sys.modules[module.__name__] = real
            return
        module.__path__ = []
        module.__dict__["__getattr__"] = partial(getattr, real)


@cache
def table() -> dict[str, str]:
    """The old names, without the package's, each with the one of today; a package stands for all below it."""
    table: dict[str, str] = json.loads(Path(__file__).with_name("moved.json").read_text(encoding="utf-8"))
    return table
