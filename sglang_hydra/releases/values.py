"""Values of one release's arguments: do they fit, and how does its command line say them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sglang_hydra.releases.table import Argument, Release
from sglang_hydra.text.words import nearest

_SUFFIXED = re.compile(r"\d+(\.\d+)?(Ki|Mi|Gi|Ti|k|M|G|T)|-?\d+")
_JSON_READERS = ("json.loads", "json_list_type", "parse_cuda_graph_config_arg")
_MOST_CHOICES = 12


def flag_for(argument: Argument, release: Release) -> str | None:
    """The flag that says this argument: its own, else an old one that still feeds it; None where there is none."""
    if argument.flag is not None:
        return argument.flag
    for old in release.old_flags.values():
        if old.field == argument.name and old.value in (None, True):
            return old.flag
    return None


def problem(argument: Argument, value: Any) -> str | None:
    """Why ``value`` cannot be given for ``argument``, in a clause; None where it can."""
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


def rendered(argument: Argument, value: Any, flag: str) -> list[str]:
    """The words that give ``value`` on the command line. Raises ValueError, in words, for what no flag can say."""
    if value is None:
        if argument.default is None:
            return []
        raise ValueError(f"{argument.name}=null has no flag on the command line: its default is {argument.default}")
    if argument.action == "BooleanOptionalAction":
        return [flag] if value else [f"--no-{flag[2:]}"]
    if argument.action == "store_true" or (isinstance(value, bool) and argument.flag is None):
        if value:
            return [flag]
        if argument.default is False:
            return []
        raise ValueError(f"{argument.name}=false has no flag on the command line: {flag} takes no value")
    if argument.reader in _JSON_READERS and not isinstance(value, str):
        return _with(flag, json.dumps(value))
    if argument.nargs in ("+", "*"):
        items = [_word(item) for item in (value if isinstance(value, (list, tuple, set, frozenset)) else [value])]
        if not items and argument.nargs == "+":
            raise ValueError(f"{argument.name}=[] has no flag on the command line: {flag} takes one value or more")
        return [flag, *items]
    if argument.nargs == "?" and (value is True or value == argument.const):
        return [flag]
    return _with(flag, _word(value))


def _with(flag: str, word: str) -> list[str]:
    """What begins with a dash would be taken for a flag of its own."""
    return [f"{flag}={word}"] if word.startswith("-") else [flag, word]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def _alternatives(type: str) -> list[str]:
    """The parts of a union that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(type):
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and depth == 0:
            parts.append(type[start:position].strip())
            start = position + 1
    return [*parts, type[start:].strip()]


def _fits(kind: str, value: Any, argument: Argument) -> bool:
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
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def nearest_choice(argument: Argument, value: Any) -> str | None:
    """The choice that was probably meant."""
    return nearest(str(value), map(str, argument.choices)) if argument.choices else None


def _listed(choices: tuple[Any, ...]) -> str:
    return ", ".join(map(str, choices[:_MOST_CHOICES])) + (", ..." if len(choices) > _MOST_CHOICES else "")
