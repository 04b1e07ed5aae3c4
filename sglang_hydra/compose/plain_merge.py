"""Merges and converts plain values at a place of known type, with the same result as OmegaConf.

The values have been checked (``node_types.problems_at``, ``overrides.value_problem``), so each fits its place. If the
result depends on more than value and place, ``NotPlain`` is raised and OmegaConf merges."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.fields import MISSING
from sglang_hydra.compose.grammar import unescaped
from sglang_hydra.compose.node_types import types_of, without_none
from sglang_hydra.compose.schema import Root

CALLS = ("${tiny_path:}",)
"""Interpolations that depend on no other key: they stay unresolved here."""


class NotPlain(Exception):
    """Raised if only OmegaConf can merge these values."""


def merged_root(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tree ``above`` merged over ``below``; of the arguments, both contain only the named ones."""
    result = dict(below)
    types = types_of(Root)
    for name, value in above.items():
        if name in EVERY:
            result[name] = argument(name, result.get(name), value)
        elif name in types:
            result[name] = merged(types[name], result[name], value)
        else:
            raise NotPlain(name)
    return result


def argument(name: str, below: Any, value: Any) -> Any:
    """Returns the value of an argument of SGLang in its type. Raises NotPlain for a mapping."""
    if isinstance(below, dict) or isinstance(value, dict):
        raise NotPlain(name)
    field = EVERY[name]
    if field.kind == "float":
        return [_float(item) for item in value] if field.is_list and value is not None else _float(value)
    return _escaped(value) if field.kind == "str" and isinstance(value, str) else literal(value)


def merged(schema: Any, below: Any, above: Any) -> Any:
    """Returns ``above`` merged over ``below`` at a place of type ``schema``. Neither is changed."""
    if isinstance(above, str):
        return _text(schema, above)
    kind = without_none(schema)
    if is_dataclass(kind):
        if not isinstance(above, Mapping) or not isinstance(below, Mapping):
            raise NotPlain(kind)
        types = types_of(kind)
        return {**below, **{name: merged(types[name], below[name], item) for name, item in above.items()}}
    if above is None:
        return None
    if kind is Any:
        return _merged_freely(below, above)
    container = typing.get_origin(kind)
    if container is dict:
        known = below if isinstance(below, dict) else {}
        inner = typing.get_args(kind)[1]
        if not all(isinstance(name, str) for name in above):
            raise NotPlain(kind)
        return {**known, **{name: merged(inner, known.get(name), item) for name, item in above.items()}}
    if container is list:
        return [merged(typing.get_args(kind)[0], None, item) for item in literal(above)]
    return str(above) if kind is str else _float(above) if kind is float else above


def with_value(schema: Any, node: Any, keys: Sequence[str], value: Any, *, may_add: bool = False) -> Any:
    """Returns ``node`` with ``value`` merged at ``keys`` below it. Raises NotPlain or LookupError if there is no such
    place or only OmegaConf may add it; ``may_add`` allows a new key in a free mapping."""
    if not keys:
        return merged(schema, node, value)
    kind, (name, *rest) = without_none(schema), keys
    if not isinstance(node, Mapping) or (name not in node and (rest or not may_add or is_dataclass(kind))):
        raise NotPlain(name)
    inner = types_of(kind)[name] if is_dataclass(kind) else Any if kind is Any else typing.get_args(kind)[1]
    return {**node, name: with_value(inner, node.get(name), rest, value, may_add=may_add)}


def literal(value: Any) -> Any:
    """Returns a literal value in the containers that OmegaConf returns. Raises NotPlain for anything else."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        if "${" in value or value == MISSING:
            raise NotPlain(value)
        return value
    if isinstance(value, (list, tuple)):
        return [literal(item) for item in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: literal(item) for name, item in value.items()}
    raise NotPlain(type(value))


def _text(schema: Any, above: str) -> str:
    """Returns text for a place; an interpolation of ``CALLS`` stays as it is. Raises NotPlain for any other."""
    if above in CALLS and without_none(schema) is str:
        return above
    return _escaped(above) if without_none(schema) is str else str(literal(above))


def _escaped(value: str) -> str:
    """Returns the text that OmegaConf makes of one whose ``${`` are all escaped. Raises NotPlain for another ``${``."""
    plain = unescaped(value)
    if plain == value or plain in CALLS:
        return str(literal(value))
    return str(plain)


def _merged_freely(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        if not all(isinstance(name, str) for name in above):
            raise NotPlain(above)
        return {**below, **{name: _merged_freely(below.get(name), item) for name, item in above.items()}}
    if isinstance(below, (dict, list)) and isinstance(above, (dict, list)) and type(below) is not type(above):
        raise NotPlain(type(above))
    return literal(above)


def _float(value: Any) -> Any:
    value = literal(value)
    return float(value) if isinstance(value, int) else value
