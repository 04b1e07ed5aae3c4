"""Lets SGLang be imported where its compiled kernels cannot: names of the missing packages resolve, using one fails.

Installed into a test environment's site-packages and loaded at every start of its interpreter by a .pth file. What it
leaves to test is all of SGLang but the kernels: arguments, processes, HTTP, scheduling, and PyTorch on the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

PACKAGES = ("sgl_kernel", "torchao")


class Absent:
    """What an import from a missing package gives: it may be passed around and looked into, never used."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> Absent:
        return _inside(self.path, name)

    def __call__(self, *values: Any, **named: Any) -> NoReturn:
        raise NotImplementedError(f"{self.path} is not installed in this environment: a stand-in has its name")


class AbsentModule(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Absent:
        return _inside(self.__name__, name)


class Finder:
    """Finds the missing packages and anything below them; it is its own loader."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        known = name.partition(".")[0] in PACKAGES
        return ModuleSpec(name, self, is_package=True) if known else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return


def _inside(path: str, name: str) -> Absent:
    # Python asks modules and values for its own protocols: having none of them is the honest answer.
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"{path}.{name}")
    return Absent(f"{path}.{name}")


def install() -> None:
    """First in line, so that a half-installed package is not tried."""
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
