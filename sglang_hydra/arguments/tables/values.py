"""Values of one release's arguments: whether they fit, and which flag says them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sglang_hydra.arguments.tables.table import Argument
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.words import nearest

_SUFFIXED = re.compile(r"\d+(\.\d+)?(Ki|Mi|Gi|Ti|k|M|G|T)|-?\d+")
_JSON_READERS = ("json.loads", "json_list_type", "parse_cuda_graph_config_arg")
_MOST_CHOICES = 12


def problem(argument: Argument, value: object) -> str | None:
    """Returns why ``value`` cannot be given for ``argument``, in a clause; None where it can."""
    if value is None:
        return None if "None" in argument.type.split(" | ") else "cannot be null"
    kinds = [kind for kind in _alternatives(argument.type) if kind != "None"]
    if not any(_fits(kind, value, argument) for kind in kinds):
        return f"is not {' or '.join(kinds)}"
    if argument.choices is not None:
        for item in value if isinstance(value, (list, tuple, set, frozenset)) else [value]:
            if item not in argument.choices:
                return f"is none of its choices: {_listed(argument.choices)}"
    return None


def as_text(argument: Argument, value: object) -> object:
    """Returns the value with a number as text where the argument is one: YAML reads some words as numbers."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if is_number and "str" in argument.type.split(" | ") else value


def _alternatives(type: str) -> list[str]:
    """Returns the parts of a union that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(type):
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and depth == 0:
            parts.append(type[start:position].strip())
            start = position + 1
    return [*parts, type[start:].strip()]


def _fits(kind: str, value: object, argument: Argument) -> bool:
    if argument.reader in _JSON_READERS and isinstance(value, str):
        return _is_json(value)
    if argument.reader == "human_readable_int" and isinstance(value, str):
        return _SUFFIXED.fullmatch(value) is not None
    head, _, inner = kind.partition("[")
    if head in ("list", "set", "tuple"):
        each = inner.removesuffix("]") or "Any"
        return isinstance(value, (list, tuple, set, frozenset)) and all(
            any(_fits(part, item, argument) for part in _alternatives(each)) for item in value
        )
    if head in ("dict", "CudaGraphConfig"):
        return isinstance(value, Mapping)
    if head == "bool":
        return isinstance(value, bool)
    if head == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if head == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if head == "str":
        # A word that YAML reads as a number is text where text is wanted.
        return isinstance(value, (str, int, float)) and not isinstance(value, bool) and "\0" not in str(value)
    return head == "Any" or isinstance(value, (str, Mapping))


def _is_json(text: str) -> bool:
    try:
        read_json(text, "argument")
    except ValueError:
        return False
    return True


def nearest_choice(argument: Argument, value: object) -> str | None:
    """Returns the choice that was probably meant."""
    return nearest(str(value), map(str, argument.choices)) if argument.choices else None


def _listed(choices: tuple[object, ...]) -> str:
    return ", ".join(map(str, choices[:_MOST_CHOICES])) + (", ..." if len(choices) > _MOST_CHOICES else "")
