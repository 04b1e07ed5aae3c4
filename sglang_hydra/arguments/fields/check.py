"""Checks whether a value fits its argument, for Python objects from overrides, YAML and plan files.

SGLang's constructor does not check, so ``resolve`` does not either; checks happen where text enters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.fields.arg import Field
from sglang_hydra.arguments.fields.server_args import LoRARef
from sglang_hydra.text.words import typed

MOST_LISTED = 6
"""A message lists at most this number of choices, then the number of the others."""


def check_value(name: str, value: Any, field: Field | None = None) -> str | None:
    """Returns why ``value`` does not fit the argument ``name``, in one line with its type or allowed values, or None.

    An int that a float can hold fits a float; a bool fits neither an int nor a str; 2.0 is not an int; nan is a float.
    ``field`` is the argument as another release has it. Raises KeyError for an unknown name."""
    field = field or FIELDS[name]
    if value is None:
        return None if field.optional else f"{name}=null: {name} cannot be null, it is {_a(field.type)}"
    if name == "lora_paths":
        return _check_lora_paths(value)
    if name == "lora_target_modules":
        return _check_lora_target_modules(field, value)
    if not field.is_list:
        return _check_one(field, field.kind, value)
    if not isinstance(value, (list, tuple)):
        return f"{_assignment(field, value)} is not a list of {field.kind}s"
    return next((found for item in value if (found := _check_one(field, field.kind, item))), None)


def typed_problem(name: str, value: Any, field: Field | None = None) -> str | None:
    """Returns why a typed value does not fit the argument ``name``, or None.

    Adds to ``check_value``: no zero byte, and valid JSON where the argument takes JSON text and no file is named."""
    field = field or FIELDS[name]
    if value is None and not field.optional:
        return f"{name}=null: it cannot be null, it is {field.type}"
    problem = check_value(name, value, field)
    if problem is None and isinstance(value, str) and "\0" in value:
        return f"{name} has a zero byte in it, which no program can be given"
    if problem is None and field.arg.json and isinstance(value, str) and value[:1] not in ("", "/", ".", "@"):
        return check_json(name, value)
    return problem


def check_json(name: str, text: str) -> str | None:
    """Returns where the text of a JSON argument stops being a JSON object, in one line, or None."""
    import json

    from sglang_hydra.text.budget import read_json

    try:
        value = read_json(text, "argument")
    except json.JSONDecodeError as failure:
        place = f"line {failure.lineno}, column {failure.colno}"
        return f"{name} is not JSON: {failure.msg} at {place}, near {text[failure.pos : failure.pos + 20]!r}"
    except ValueError as failure:
        return f"{name} is not JSON that can be read: {failure}"
    return None if isinstance(value, dict) else f"{name} must be a JSON object like {{...}}, not {text[:40]!r}"


def _check_one(field: Field, kind: str, value: Any) -> str | None:
    if not _FITS[kind](value):
        hint = _json_hint(field, value) if field.arg.json else ""
        return f"{_assignment(field, value)} is not {_a(kind)}{hint}"
    choices = field.arg.choices
    return f"{_assignment(field, value)} {not_among(choices)}" if choices is not None and value not in choices else None


def not_among(choices: Sequence[object]) -> str:
    """Returns the clause on a value that is not among an argument's choices."""
    few = len(choices) <= MOST_LISTED
    return f"is not one of {', '.join(map(str, choices))}" if few else f"is not among its {len(choices)} values"


def is_number(value: Any) -> bool:
    """Returns whether ``value`` is a float, or an int that a float can hold."""
    return isinstance(value, float) or (_is_int(value) and abs(value) <= sys.float_info.max)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "int": _is_int,
    "float": is_number,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
}


def _check_lora_target_modules(field: Field, value: Any) -> str | None:
    if not isinstance(value, (list, tuple, set, frozenset)):
        return f"{_assignment(field, value)} is not a list of module names"
    items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
    return next((found for item in items if (found := _check_one(field, "str", item))), None)


def _check_lora_paths(value: Any) -> str | None:
    if isinstance(value, Mapping):
        invalid = next((pair for pair in value.items() if not all(isinstance(part, str) for part in pair)), None)
        return (
            None
            if invalid is None
            else f"lora_paths: {_short(invalid[0])} -> {_short(invalid[1])} must map a name to a path, both str"
        )
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return f"lora_paths={_short(value)} is neither a list of adapters nor a mapping from name to path"
    return next((found for item in value if (found := _check_adapter(item))), None)


def _check_adapter(item: Any) -> str | None:
    if isinstance(item, (str, LoRARef)):
        return None
    if not isinstance(item, Mapping):
        return f"lora_paths: {_short(item)} is no str (path or name=path) and no mapping with lora_name and lora_path"
    for key in ("lora_name", "lora_path"):
        if not isinstance(item.get(key), str):
            return f"lora_paths: {_short(dict(item))} needs {key}, a str"
    if not isinstance(item.get("pinned", False), bool):
        return f"lora_paths: pinned={_short(item['pinned'])} is not a bool"
    if invalid := sorted(map(str, item.keys() - {"lora_name", "lora_path", "pinned"})):
        return f"lora_paths: {invalid[0]!r} is not one of lora_name, lora_path, pinned"
    return None


def _assignment(field: Field, value: Any) -> str:
    return f"{field.name}={'***' if field.arg.secret else _short(value)}"


def _short(value: Any) -> str:
    text = typed(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "int" else f"a {kind}"


def _json_hint(field: Field, value: Any) -> str:
    """Suggests the JSON text of an object where the argument takes JSON."""
    import json

    if not isinstance(value, (Mapping, list)):
        return ""
    try:
        return f": write it as JSON text, {field.name}='{json.dumps(value)}'"
    except (TypeError, ValueError):
        return ": write it as JSON text"
