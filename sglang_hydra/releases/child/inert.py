"""Provides names and modules that can be imported and mentioned, and that answer nothing.

While a module is imported, an inert name can be a base class, a decorator, an annotation or a default. Once the release
runs, every value or decision that depends on one is an unanswered question: a silent answer would be a wrong value."""

from __future__ import annotations

import abc
import builtins
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

from .questions import is_importing, refuse

_MENTIONED = "is_mentioned_only"


def _asking(question: str, *answer: object) -> Any:
    """Returns a method that gives the answer, by default its own class, while a module is imported. Afterwards it
    refuses the question about the class's name and the method's values."""

    def method(cls: type, *values: object) -> object:
        _refuse_when_running(cls, question.format(cls.__name__, *values))
        return answer[0] if answer else cls

    return method


_calculate = _asking("arithmetic with {0}")


class InertType(abc.ABCMeta):
    """The type of an inert name. A class of the release with such a base is an ordinary class again."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = inert_name(f"{cls.__name__}.{name}")
        type.__setattr__(cls, name, value)
        return value

    def __call__(cls, *args: object, **kwargs: object) -> object:
        if not is_inert(cls):
            return super().__call__(*args, **kwargs)
        if not is_importing():
            raise refuse(f"{cls.__name__}()")
        is_decorator = len(args) == 1 and not kwargs and isinstance(args[0], (FunctionType, type))
        return args[0] if is_decorator else inert_name(f"{cls.__name__}()")

    def __getitem__(cls, key: object) -> object:
        if isinstance(key, (str, int)) and not isinstance(key, type):
            _refuse_when_running(cls, f"the item {key!r} of {cls.__name__}")
        return cls

    __setitem__ = _asking("setting an item of {0}", None)
    __bool__ = _asking("the truth of {0}", True)
    __iter__ = _asking("what is in {0}", iter(()))
    __contains__ = _asking("whether {1!r:.60} is in {0}", False)
    __len__ = _asking("the length of {0}", 0)
    __enter__ = _asking("{0} as a context")

    def __eq__(cls, other: object) -> bool:
        if cls is other or other is None:  # an inert name replaces an object, so it is not None
            return cls is other
        _refuse_when_running(cls, f"whether {cls.__name__} equals {other!r:.60}")
        return False

    __hash__ = abc.ABCMeta.__hash__

    __lt__ = __le__ = __gt__ = __ge__ = _asking("the order of {0} and {1!r:.60}", False)
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _calculate
    __floordiv__ = __mod__ = __pow__ = __and__ = __neg__ = __invert__ = __abs__ = __lshift__ = _calculate
    __int__ = __float__ = __index__ = __matmul__ = _calculate

    def __or__(cls, other: object) -> Any:  # a union of types, for an annotation
        return cls

    __ror__ = __or__

    def __str__(cls) -> str:
        _refuse_when_running(cls, f"the text of {cls.__name__}")
        return super().__repr__()

    def __format__(cls, spec: str) -> str:
        return str(cls)

    def __exit__(cls, *error: object) -> None:
        return None

    def register(cls, *args: Any, **kwargs: Any) -> Any:
        """Registers a class. ABCMeta's own takes one class; registries of that name take anything."""
        return cls

    def __deepcopy__(cls, memo: object) -> object:
        return cls


class InertBase(metaclass=InertType):
    """Accepts every argument with which its subclasses are built or declared."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __init_subclass__(cls, **kwargs: object) -> None:
        pass

    def __class_getitem__(cls, key: object) -> object:
        return cls


def inert_name(name: str) -> object:
    """Returns a new inert name; ``name`` is dotted, for messages."""
    return InertType(name, (InertBase,), {_MENTIONED: True, "__module__": "inert"})


def is_inert(value: object) -> bool:
    """Returns whether ``value`` replaces an absent object."""
    return isinstance(value, InertModule) or (isinstance(value, InertType) and _MENTIONED in vars(value))


def _refuse_when_running(cls: object, question: str) -> None:
    if is_inert(cls) and not is_importing():
        raise refuse(question)


class InertModule(ModuleType):
    """A package whose every public attribute is an inert name. ``absent`` lists attributes that it lacks, ``present``
    some that it certainly has; ``version_of`` gives its version, ``submodule`` a real module below it."""

    absent: Callable[[str], bool] = staticmethod(lambda name: False)
    present: frozenset[str] = frozenset()
    version_of: Callable[[str], str] = staticmethod(lambda top: "99.0.0")
    submodule: Callable[[str], Any] = staticmethod(lambda name: None)

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return type(self).version_of(self.__name__.partition(".")[0])
        full = f"{self.__name__}.{name}"
        if name.startswith("__") or type(self).absent(full):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = type(self).submodule(full) or inert_name(full)
        setattr(self, name, value)
        return value


class InertLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return InertModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def refuse_hasattr() -> None:
    """Treats ``hasattr`` of an inert object as a question: otherwise every name would be found."""
    real = builtins.hasattr

    def has_attribute(value: Any, name: str) -> bool:
        if not is_inert(value):
            return real(value, name)
        if InertModule.absent(f"{value.__name__}.{name}"):
            return False
        is_known = name in vars(value) or f"{value.__name__}.{name}" in InertModule.present
        if not name.startswith("__") and not is_known and not is_importing():
            raise refuse(f"whether {value.__name__} has {name}")
        return real(value, name)

    builtins.hasattr = has_attribute
