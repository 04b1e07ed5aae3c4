"""Does a value fit its place in one of our nodes (``gpu.count``, ``launch.force``)? For values that come in as text.

The dataclasses of ``config`` say what a node holds; OmegaConf would refuse the same values, in its own words.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from sglang_hydra.config import Root
from sglang_hydra.words import nearest

_NAMES = {int: "an int", float: "a number", str: "text", bool: "true or false"}


class Problem(NamedTuple):
    """What is wrong at one key, and what to type instead."""

    message: str
    hint: str | None = None


def problem_at(keys: Sequence[str], value: Any) -> Problem | None:
    """What is wrong with ``value`` at the place that ``keys`` lead to, from the root on; None if it fits.

    Below a mapping (``model.config``, ``engine.env``) every key is free. An interpolation fits everywhere.
    """
    schema: Any = Root
    for depth, name in enumerate(keys):
        if is_dataclass(schema):
            known = {item.name: item.type for item in fields(schema)}
            if name not in known:
                return _unknown(".".join(keys[:depth]), name, known)
            schema = known[name]
            continue
        kind = _kind(schema)
        if kind is Any:
            return None
        if typing.get_origin(kind) is not dict:
            where = ".".join(keys[:depth])
            return Problem(f"{where} is {_said(kind)} and has no key {name!r}", f"{where}=...")
        schema = typing.get_args(kind)[1]
    return _misfit(".".join(keys), schema, value)


def _misfit(key: str, schema: Any, value: Any) -> Problem | None:
    if isinstance(value, str) and "${" in value:
        return None
    if is_dataclass(schema):
        if not isinstance(value, Mapping):
            return Problem(f"{key}={value!r} is not a mapping of its keys", f"{key}.{fields(schema)[0].name}=...")
        found = (problem_at((key, str(name)), item) for name, item in value.items())
        return next((problem for problem in found if problem), None)
    if value is None:
        return None if _optional(schema) else Problem(f"{key}=null: it must be {_said(schema)}")
    kind = _kind(schema)
    container = typing.get_origin(kind)
    if container is None:
        return None if _fits(kind, value) else Problem(f"{key}={value!r} is not {_said(kind)}")
    if not (isinstance(value, Mapping) if container is dict else isinstance(value, (list, tuple))):
        example = f"{key}=[A,B]" if container is list else f"{key}.NAME=VALUE"
        return Problem(f"{key}={value!r} is not {_said(kind)}", example)
    inner = typing.get_args(kind)[-1]
    items = [(f"{key}.{name}", value[name]) for name in value] if container is dict else [(key, item) for item in value]
    return next((problem for where, item in items if (problem := _misfit(where, inner, item))), None)


def _fits(kind: Any, value: Any) -> bool:
    if kind is Any:
        return True
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    # A number is text where text is wanted (compute_capability: 9.0), as for OmegaConf.
    accepted: Any = {str: (str, int, float), float: (int, float), int: int}[kind]
    return isinstance(value, accepted)


def _kind(schema: Any) -> Any:
    """``schema`` without None."""
    if _optional(schema) and schema is not Any:
        return next(part for part in typing.get_args(schema) if part is not types.NoneType)
    return schema


def _optional(schema: Any) -> bool:
    return schema is Any or types.NoneType in typing.get_args(schema)


def _said(schema: Any) -> str:
    kind = _kind(schema)
    if typing.get_origin(kind) is list:
        return "a list"
    if typing.get_origin(kind) is dict:
        return "a mapping"
    return _NAMES.get(kind, "a mapping")


def _unknown(where: str, name: str, known: Mapping[str, Any]) -> Problem:
    near = nearest(name, known)
    path = f"{where}." if where else ""
    return Problem(
        f"{where or 'the configuration'} has no key {name!r}; it has {', '.join(known)}",
        f"did you mean {path}{near}?" if near else None,
    )
