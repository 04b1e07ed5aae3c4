"""Stands in for msgspec, whose compiled code no browser runs: Struct as a release's argument code uses it.

Fields are slots, a default that is a list, a dict or a set is copied for each instance, and nothing is checked, as in
https://jcristharif.com/msgspec/structs.html. Encoding and decoding are left out: no argument code does either.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterable
from types import ModuleType, SimpleNamespace
from typing import Any

__version__ = "0.22.0"


class _NoDefault:
    def __repr__(self) -> str:
        return "NODEFAULT"


NODEFAULT: Any = _NoDefault()
UNSET: Any = type("UnsetType", (), {"__bool__": lambda self: False})()


class MsgspecError(Exception):
    """The base of what msgspec raises."""


class DecodeError(MsgspecError):
    """Raised by decoders, which are not here."""


class ValidationError(DecodeError):
    """Raised by decoders, which are not here."""


def field(*, default: Any = NODEFAULT, default_factory: Any = NODEFAULT, name: str | None = None) -> Any:
    return SimpleNamespace(default=default, factory=default_factory, name=name, is_field=True)


def _split(value: Any) -> tuple[Any, Any]:
    """Returns a default and a factory of it; one that can be changed becomes a factory."""
    if getattr(value, "is_field", False):
        return (value.default, value.factory) if value.factory is not NODEFAULT else _split(value.default)
    if type(value) in (list, dict, set, bytearray):
        return NODEFAULT, value.copy if value else type(value)
    return value, NODEFAULT


class _Meta(type):
    def __new__(
        cls, name: str, bases: tuple[type, ...], space: dict[str, Any], *, kw_only: bool = False, **options: Any
    ) -> Any:
        space = dict(space)
        own = space.get("__annotations__", {})
        known: dict[str, tuple[Any, Any]] = {}
        named: list[str] = []
        config = {"frozen": False, "eq": True, "order": False, "dict": False, "weakref": False}
        for base in reversed(bases):
            known |= getattr(base, "_struct_known", {})
            named += [each for each in getattr(base, "_struct_named", ()) if each not in named]
            config |= getattr(base, "_struct_options", {})
        config |= options
        fields = [each for each in own if "ClassVar" not in str(own[each])]
        for each in fields:
            known[each] = _split(space.pop(each, NODEFAULT))
        named = [each for each in named if not (kw_only and each in fields)]
        named += [] if kw_only else [each for each in fields if each not in named]
        has_dict = config["dict"] and not any(getattr(base, "_struct_options", {}).get("dict") for base in bases)
        inherited = {each for base in bases for each in getattr(base, "__struct_fields__", ())}
        space["__slots__"] = (
            *(each for each in fields if each not in inherited),
            *(("__dict__",) if has_dict else ()),
            *(("__weakref__",) if config["weakref"] else ()),
        )
        space |= {"_struct_known": known, "_struct_named": named, "_struct_options": config}
        space["__struct_fields__"] = (*named, *(each for each in known if each not in named))
        space["__struct_config__"] = SimpleNamespace(**config)
        space["__match_args__"] = tuple(named)
        made: Any = super().__new__(cls, name, bases, space)
        if config["eq"] and "__eq__" not in space and config["frozen"] and "__hash__" not in space:
            made.__hash__ = _hash
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, space)


def _hash(self: Any) -> int:
    return hash((type(self), *(getattr(self, name) for name in self.__struct_fields__)))


class Struct(metaclass=_Meta):
    """The base of structs."""

    def __init__(self, *values: Any, **given: Any) -> None:
        kind = type(self)
        if len(values) > len(kind._struct_named):
            raise TypeError("Extra positional arguments provided")
        for name, value in zip(kind._struct_named, values, strict=False):
            if name in given:
                raise TypeError(f"Argument '{name}' given by name and position")
            given[name] = value
        for name in kind.__struct_fields__:
            if name in given:
                value = given.pop(name)
            else:
                value, factory = kind._struct_known[name]
                if factory is not NODEFAULT:
                    value = factory()
                elif value is NODEFAULT:
                    raise TypeError(f"Missing required argument '{name}'")
            object.__setattr__(self, name, value)
        if given:
            raise TypeError(f"Unexpected keyword argument '{next(iter(given))}'")
        if hasattr(kind, "__post_init__"):
            self.__post_init__()

    def __setattr__(self, name: str, value: Any) -> None:
        if type(self)._struct_options["frozen"]:
            raise AttributeError(f"immutable type: '{type(self).__name__}'")
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> Any:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__struct_fields__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({shown})"

    def __copy__(self) -> Any:
        made = object.__new__(type(self))
        for name in self.__struct_fields__:
            object.__setattr__(made, name, getattr(self, name))
        if hasattr(self, "__dict__"):
            made.__dict__.update(self.__dict__)
        return made

    def __replace__(self, **changes: Any) -> Any:
        return type(self)(**{**_asdict(self), **changes})

    def __reduce__(self) -> Any:
        return _rebuilt, (type(self), _asdict(self))


def _rebuilt(kind: Any, fields: dict[str, Any]) -> Any:
    return kind(**fields)


def _asdict(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def defstruct(
    name: str,
    fields: Iterable[Any],
    *,
    bases: tuple[type, ...] | None = None,
    module: str | None = None,
    namespace: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    space: dict[str, Any] = {"__module__": module or sys._getframe(1).f_globals["__name__"], **(namespace or {})}
    notes: dict[str, Any] = {}
    for each in fields:
        named, kind, *default = (each, Any) if isinstance(each, str) else each
        notes[named] = kind
        if default:
            space[named] = default[0]
    return _Meta(name, bases or (Struct,), {**space, "__annotations__": notes}, **options)


def _fields(kind: Any) -> tuple[Any, ...]:
    kind = kind if isinstance(kind, type) else type(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    rows = []
    for name in kind.__struct_fields__:
        default, factory = kind._struct_known[name]
        rows.append(
            SimpleNamespace(
                name=name,
                encode_name=name,
                type=hints[name],
                default=default,
                default_factory=factory,
                required=default is NODEFAULT and factory is NODEFAULT,
            )
        )
    return tuple(rows)


def _module(name: str, **content: Callable[..., Any]) -> Any:
    made = ModuleType(f"msgspec.{name}")
    vars(made).update(content)
    sys.modules[made.__name__] = made
    return made


structs = _module("structs", fields=_fields, asdict=_asdict, replace=lambda struct, **new: struct.__replace__(**new))
json = _module("json")
msgpack = _module("msgpack")
