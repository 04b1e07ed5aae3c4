"""Checks whether a value fits its place in one of our nodes (``gpu.count``, ``launch.force``).

The dataclasses of ``compose.schema`` give the types. OmegaConf refuses the same values, with other messages."""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.meant import in_units_of, units_of, whole_numbers
from sglang_hydra.compose.corrections import switch_meant
from sglang_hydra.compose.schema import Root
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.words import nearest, program, size_of, some_of

_NAMES = {int: "an int", float: "a number", str: "text", bool: "true or false"}
_EXAMPLES = {"gpu.compute_capability": "MAJOR.MINOR, such as gpu.compute_capability=9.0"}
"""What to type if the type alone does not say it."""


class Problem(NamedTuple):
    """A wrong value or ``unknown`` key: its key, what is wrong, what to type, and the probable key or value."""

    key: str
    message: str
    hint: str | None = None
    near: str | None = None
    value: str | None = None
    unknown: bool = False

    def finding(self, place: str = "") -> Finding:
        """Returns the finding on a value that nobody typed: one of the file and line ``place``."""
        hint = (Remedy.meant(self.near) if self.near else None), self.hint
        message = f"{place}: {self.message}" if place else self.message
        return Finding("error", "CLI002", message, (self.key,), hint)


def problems_at(keys: Sequence[str], value: Any, *, resolved: bool = False) -> Iterator[Problem]:
    """Yields everything that is wrong with ``value`` at the place ``keys``, counted from the root.

    Every key below a mapping (``model.config``, ``engine.env``) is allowed. Until ``resolved``, an interpolation fits
    everywhere."""
    schema: Any = Root
    for depth, name in enumerate(keys):
        if is_dataclass(schema):
            known = types_of(schema)
            if name not in known:
                yield _unknown(".".join(keys[:depth]), name, known)
                return
            schema = known[name]
            continue
        kind = without_none(schema)
        if kind is Any:
            return
        if typing.get_origin(kind) is not dict:
            where = ".".join(keys[:depth])
            message = f"{where} is {_described(kind)} and has no key {name!r}"
            yield Problem(".".join(keys), message, f"{where}=...", unknown=True)
            return
        schema = typing.get_args(kind)[1]
    yield from _misfits(".".join(keys), schema, value, resolved)


def count_at(key: str, value: object) -> int | None:
    """Returns the number of a count with a suffix (``32k``) for an argument or key that takes one; else None."""
    size = size_of(value) if isinstance(value, str) and not units_of(key) else None
    if key in EVERY:
        return size if EVERY[key].kind == "int" and not EVERY[key].is_list else None
    return size if size is not None and not any(problems_at(key.split("."), size)) else None


def is_text(keys: Sequence[str]) -> bool:
    """Returns whether the place ``keys`` takes text only."""
    return not any(problems_at(keys, "")) and any(problems_at(keys, True))


def _misfits(key: str, schema: Any, value: Any, resolved: bool) -> Iterator[Problem]:
    if isinstance(value, str) and "${" in value and not resolved:
        return
    if is_dataclass(schema):
        if isinstance(value, Mapping):
            known = types_of(schema)
            for name, item in value.items():
                if name in known:
                    yield from _misfits(f"{key}.{name}", known[name], item, resolved)
                else:
                    yield _unknown(key, str(name), known)
        else:
            yield Problem(key, f"{key}={value!r} is not a mapping of its keys", f"{key}.{fields(schema)[0].name}=...")
        return
    kind = without_none(schema)
    container = typing.get_origin(kind)
    if value is None:
        if not _optional(schema):
            yield Problem(key, f"{key}=null: it must be {_described(schema)}")
    elif container is None:
        if not _fits(kind, value):
            hint = _EXAMPLES.get(key) or f"{program()} explain {key} says what it takes"
            yield Problem(key, f"{key}={value!r} is not {_described(kind)}", hint, value=_meant(key, kind, value))
    elif not (isinstance(value, Mapping) if container is dict else isinstance(value, (list, tuple))):
        items = value if isinstance(value, str) and re.fullmatch(r"[\w.-]+", value) else "A,B"
        example = f"{key}=[{items}]" if container is list else f"{key}.NAME=VALUE"
        yield Problem(key, f"{key}={value!r} is not {_described(kind)}", example)
    else:
        inner = typing.get_args(kind)[-1]
        for name in value:
            if container is dict:
                yield from _misfits(f"{key}.{name}", inner, value[name], resolved)
            else:
                yield from _misfits(key, inner, name, resolved)


def _meant(key: str, kind: Any, value: Any) -> str | None:
    """Returns the probable value: ``81920`` for 80GB in MiB, ``4`` for 4.0, ``true`` for on; None if unclear."""
    text = str(value).strip()
    if kind is bool:
        return switch_meant(text)
    if kind not in (int, float) or isinstance(value, bool):
        return None
    return in_units_of(key, text) if units_of(key) else next(whole_numbers(text), None)


def _fits(kind: Any, value: Any) -> bool:
    if kind is Any:
        return True
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)
    # A number is accepted as text (compute_capability: 9.0), as by OmegaConf.
    accepted: Any = {str: (str, int, float), int: int}[kind]
    return isinstance(value, accepted) and not (isinstance(value, str) and "\0" in value)


def types_of(schema: Any) -> Mapping[str, Any]:
    return _types_of(schema)


@lru_cache(maxsize=64)
def _types_of(schema: Any) -> Mapping[str, Any]:
    return MappingProxyType({item.name: item.type for item in fields(schema)})


def without_none(schema: Any) -> Any:
    """Returns the type ``schema`` without None."""
    if _optional(schema) and schema is not Any:
        return next(part for part in typing.get_args(schema) if part is not types.NoneType)
    return schema


def _optional(schema: Any) -> bool:
    return schema is Any or types.NoneType in typing.get_args(schema)


def _described(schema: Any) -> str:
    kind = without_none(schema)
    if typing.get_origin(kind) is list:
        return "a list"
    if typing.get_origin(kind) is dict:
        return "a mapping"
    return _NAMES.get(kind, "a mapping")


_UNIT = re.compile(r"_[gm]i?b$")
"""A unit at the end of a key that was probably meant as one of our memory_mib keys."""


def _unknown(where: str, name: str, known: Mapping[str, Any]) -> Problem:
    deeper = [key for key, kind in known.items() if is_dataclass(kind) and name in types_of(kind)]
    plain = {_UNIT.sub("", one): one for one in known}
    near = f"{deeper[0]}.{name}" if len(deeper) == 1 else plain.get(nearest(_UNIT.sub("", name), plain) or "")
    is_of_server = where.startswith("topology.") and "args" in known and name in EVERY
    near = near or (f"args.{name}" if is_of_server else None)
    path = f"{where}." if where else ""
    if where == "sweep" and name in EVERY:
        swept = f"-m {name}=A,B varies it; in a file, {name}: A,B below hydra: and sweeper: and params:"
        return Problem(f"{path}{name}", f"sweep has no key {name!r}", swept, unknown=True)
    listed = some_of(name, known, f"{program()} explain {where}" if where else f"{program()} --help")
    return Problem(
        f"{path}{name}",
        f"{where or 'the configuration'} has no key {name!r}",
        f"{where or 'it'} has {listed}",
        f"{path}{near}" if near else name if name in EVERY or name in types_of(Root) else None,
        unknown=True,
    )
