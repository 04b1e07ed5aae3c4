"""Lets SGLang be imported where its compiled kernels cannot: names of the missing packages resolve, using one fails.

Installed into a test environment's site-packages and loaded at every start of its interpreter by a .pth file. What it
leaves to test is all of SGLang but the kernels: arguments, processes, HTTP, scheduling, and PyTorch on the CPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Any, NoReturn


class Absent:
    """What an import from a missing package gives: it may be passed around and looked into, never used."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.__name__ = path.rpartition(".")[2]

    def __getattr__(self, name: str) -> Absent:
        return _inside(self.path, name)

    def __call__(self, *values: Any, **named: Any) -> NoReturn:
        raise NotImplementedError(f"{self.path} is not installed in this environment: a stand-in has its name")


class AbsentModule(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Absent:
        return _inside(self.__name__, name)


class Finder:
    """Finds the missing packages and anything below them; it is its own loader.

    ``versions`` has a version for each of the packages. A module of them that needs no compiled part is taken from
    ``real``, where it lies as ``package.module.py``.
    """

    def __init__(self, versions: dict[str, str], real: str) -> None:
        self._versions, self._real = versions, real

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._versions:
            return None
        file = os.path.join(self._real, f"{name}.py")
        if os.path.exists(file):
            return spec_from_file_location(name, file)
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in self._versions:
            module.__dict__["__version__"] = self._versions[module.__name__]


def _inside(path: str, name: str) -> Absent:
    # Python asks modules and values for its own protocols: having none of them is the honest answer.
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"{path}.{name}")
    return Absent(f"{path}.{name}")


def install(**versions: str) -> None:
    """First in line, so that a half-installed package is not tried."""
    real = os.path.join(os.path.dirname(__file__), "kernel_standin_modules")
    sys.meta_path.insert(0, Finder(versions, real))  # type: ignore[arg-type]
