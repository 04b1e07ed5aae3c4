"""What a release's refusal advises: the flags and values in its message, as overrides to try."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sglang_hydra.arguments.tables.table import Argument
from sglang_hydra.text.screen import shown

_FLAG = re.compile(r"(?P<flag>--[a-z][a-z0-9-]*)(?:(?:=| (?:to )?)[\"'`]?(?P<value>-?\w[\w.]*)[\"'`]?)?")
_QUOTED = re.compile(r"['\"`]([\w.-]+)['\"`]")
_NUMBER = re.compile(r"-?[\d.]+")
_SWITCHES = ("store_true", "store_false", "BooleanOptionalAction")
_VENDORS = {"ascend": "ascend", "intel_amx": "intel", "intel_xpu": "intel", "aiter": "amd", "wave": "amd"}
"""Backends of one vendor's machines alone."""
_SHORTEST = 3
"""Letters of a value that may be looked for in a message."""


def advised(
    message: str, arguments: Mapping[str, Argument], typed: Mapping[str, object], vendor: str | None
) -> list[str]:
    """The overrides that may mend a refusal, likeliest first: each flag of ``message`` with its value; of what
    was ``typed`` and is named there, its default; then the other choices that stand there in quotes, those of other
    vendors' machines than ``vendor``'s left out. ``arguments`` are the release's, by name.

    They are candidates: what does not help is dropped once it was planned (``planning.making.replan``).
    """
    by_flag = {flag: argument for argument in arguments.values() for flag in argument.flags}
    flags = [(by_flag[found["flag"]], found["value"]) for found in _FLAG.finditer(message) if found["flag"] in by_flag]
    words = [f"{argument.name}={value}" for argument, word in flags for value in _values(argument, word, typed)]
    quoted = [word for word in _QUOTED.findall(message) if _VENDORS.get(word, vendor) == vendor]
    named = [argument for argument, _ in flags]
    for name, value in typed.items():
        argument = arguments.get(name)
        if argument is None or argument.required or not (argument in named or _stands_in(message, name, value)):
            continue
        words.append(f"{name}={shown(argument.default)}")
        words += [f"{name}={choice}" for choice in quoted if choice in map(str, argument.choices or ())]
    as_typed = {f"{name}={shown(value)}" for name, value in typed.items()}
    return [word for word in dict.fromkeys(words) if word not in as_typed]


def _stands_in(message: str, name: str, value: object) -> bool:
    """Whether a message names an argument, or its value where that is a word."""
    words = [name, *([value] if isinstance(value, str) and len(value) >= _SHORTEST else [])]
    return any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", message, re.IGNORECASE) for word in words)


def _values(argument: Argument, word: str | None, typed: Mapping[str, object]) -> Iterator[str]:
    """What the message may mean: the word behind the flag where it can be a value; of a switch, the other position."""
    if argument.action in _SWITCHES:
        yield shown(not typed.get(argument.name, argument.default))
    elif word is not None and _can_hold(argument, word.rstrip(".")):
        yield word.rstrip(".")


def _can_hold(argument: Argument, word: str) -> bool:
    if argument.choices is not None:
        return word in map(str, argument.choices)
    return bool(_NUMBER.fullmatch(word)) and ("int" in argument.type or "float" in argument.type)
