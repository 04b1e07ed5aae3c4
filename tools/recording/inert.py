"""Modules that can be imported and do nothing, in place of everything that the released package imports."""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any

REAL_PACKAGES = frozenset({"sglang", "recording"})
# Kernels and process groups: what the modules that are recorded import from there they only mention.
INERT_PARTS = ("sglang.srt.layers", "sglang.srt.distributed")


class Unfaked(BaseException):
    """The package asked the world something that nothing here answers; the text says what.

    No Exception: the package must not take it for an answer.
    """


def _is_inert(name: str) -> bool:
    return any(name == part or name.startswith(part + ".") for part in INERT_PARTS)


class _InertType(abc.ABCMeta):
    """The type of a name that is only mentioned: its attributes, calls and items are such names too.

    While a module is imported such a name can be a base class, a decorator, an annotation, a default, ... Once the
    package runs, a call of one or a decision that hangs on one is Unfaked.
    """

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = inert_name(f"{cls.__name__}.{name}")
        setattr(cls, name, value)
        return value

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "mentioned_only" not in vars(cls):
            return super().__call__(*args, **kwargs)
        _only_while_importing(f"{cls.__name__}()")
        if len(args) == 1 and not kwargs and isinstance(args[0], (FunctionType, type)):
            return args[0]  # used as a decorator
        return inert_name(cls.__name__)

    def __bool__(cls) -> bool:
        if "mentioned_only" in vars(cls):
            _only_while_importing(cls.__name__)
        return True

    def register(cls, *args: Any, **kwargs: Any) -> Any:
        """ABCMeta's own takes one class; the libraries' registries of that name take anything."""
        return cls

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __setitem__(cls, key: Any, value: Any) -> None:
        pass

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __neg__(cls) -> Any:
        return cls


def _only_while_importing(name: str) -> None:
    frame = sys._getframe(2)
    while frame.f_back:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return
        frame = frame.f_back
    raise Unfaked(f"it asks {name}, which is not faked")


class _InertBase(metaclass=_InertType):
    """Takes whatever its subclasses are built or declared with."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


def inert_name(name: str) -> Any:
    """A new name that stands for nothing; `name` is dotted, for messages."""
    return _InertType(name, (_InertBase,), {"mentioned_only": True, "__module__": "inert"})


class InertModule(ModuleType):
    """A module and package whose every public attribute is an inert name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = inert_name(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class InertLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return InertModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


class InertFinder(MetaPathFinder):
    """Finds the standard library and the released package where they lie, and an inert module for any other name.

    `optional` are the names whose presence is a fact of the machine: they are found only while `present` has them.
    """

    def __init__(self, optional: frozenset[str], present: Callable[[], frozenset[str]]) -> None:
        self.optional = optional
        self.present = present

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if (top in REAL_PACKAGES or top in sys.stdlib_module_names) and not _is_inert(fullname):
            return PathFinder.find_spec(fullname, path, target)
        if top in self.optional and top not in self.present():
            return None
        return ModuleSpec(fullname, InertLoader(), is_package=True)


def install(finder: InertFinder) -> None:
    """Make `finder` the only way to find a module that is not part of the interpreter itself.

    What else the environment may hold is not seen, so a recording does not depend on it.
    """
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, finder]
