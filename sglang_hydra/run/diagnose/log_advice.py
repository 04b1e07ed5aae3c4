"""What a log itself advises: sentences near the line that decides that ask for a flag, a variable or a command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sglang_hydra.arguments.tables.table import Argument, known_versions, release

SAID = "the log advises: "
_BEFORE, _AFTER = 1, 15
_MOST, _LONGEST = 3, 240
_ASKS = re.compile(
    r"(?i)\b(?:please|try|use|set|setting|add|pass|enabl\w+|disabl\w+|specify|raise|increas\w+|reduc\w+|lower|decreas\w+"
    r"|re-?install|upgrade|downgrade|run|rerun|consider|export|switch|choose)\b"
)
# Said beside every error of its kind: conditions that nobody can judge from a log, and switches that only say more.
_STOCK = re.compile(
    r"reserved but unallocated|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|NCCL_DEBUG|DYNAMO_VERBOSE|TORCH_LOGS"
)
_NOT = re.compile(r"(?i)\b(?:cannot|can't|must not|not|don't|without|incompatible|ignored?|unrecognized)\b")
_FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]{2,60})(?:(?:=| to | )['\"`]?(\d[\w.]*|[a-z][a-z0-9_]*)(?![\w-]))?")
_VARIABLE = re.compile(
    r"\b((?:SGLANG|SGL|NCCL|MC|CUDA|PYTORCH|TORCH|HF|FLASHINFER|TRITON|TVM|NVSHMEM|UCX|GLOO|OMP|NIXL|MOONCAKE|HSA|AITER)"
    r"_[A-Z0-9_]{2,60})\b"
)
_COMMAND = re.compile(r"\bpip install \S+|\buv pip install \S+|`[a-z][\w-]* [^`]{2,80}`")
_SENTENCE = re.compile(r"(?<=[.;!])\s+(?=\S)")
_MAY = ("--", "_", "pip install", "`")
# Words after a flag that are no value of it.
_WORDS = re.compile(r"to|and|or|if|is|in|on|for|with|when|as|a|the|by|of|at|flag|option|instead|should|must")


class Advice(NamedTuple):
    """A sentence of the log. ``changes`` are the arguments that it gives a value, by the release's names, ``names`` all
    that it names."""

    text: str
    changes: Mapping[str, Any]
    names: tuple[str, ...] = ()


def may_advise(text: str) -> bool:
    """Returns whether a line may ask for something; cheap, for every line of a log."""
    return any(mark in text for mark in _MAY) and _ASKS.search(text) is not None and _names(text)


def _names(text: str) -> bool:
    return any(pattern.search(text) is not None for pattern in (_FLAG, _VARIABLE, _COMMAND))


def advice_near(
    number: int, lines: Sequence[tuple[int, str]], version: str | None, args: Mapping[str, Any] | None
) -> list[Advice]:
    """Returns the advice of the lines around ``number``: what the release has, and what is not set yet."""
    found: list[Advice] = []
    for at, line in lines:
        if not number - _BEFORE <= at <= number + _AFTER:
            continue
        for sentence in _SENTENCE.split(line):
            advice = _of(sentence.strip(), version, args or {})
            if advice is not None and advice not in found:
                found.append(advice)
    return found[:_MOST]


def _of(sentence: str, version: str | None, args: Mapping[str, Any]) -> Advice | None:
    asks = _ASKS.search(sentence)
    if asks is None or not _names(sentence) or _STOCK.search(sentence) or "python -m sglang" in sentence:
        return None
    table = release(version).arguments if version in known_versions() else None
    changes: dict[str, Any] = {}
    names: list[str] = []
    for flag, value in _FLAG.findall(sentence):
        argument = next((one for one in (table or {}).values() if flag in one.flags), None)
        if table is not None and argument is None:
            return None  # no flag of this release
        names.append(argument.name if argument is not None else flag[2:].replace("-", "_"))
        if argument is None or _NOT.search(sentence):
            continue
        wanted = _value(value, argument)
        if wanted is None:
            continue
        if args.get(argument.name) == wanted:
            return None
        changes[argument.name] = wanted
    return Advice(SAID + sentence[:_LONGEST], changes, tuple(names))


def _value(value: str, argument: Argument) -> Any:
    """Returns the value that a sentence gives an argument; None where it gives none."""
    kind = argument.type.partition(" ")[0]
    if kind == "bool":
        return True
    if kind in ("int", "float"):
        try:
            return (int if kind == "int" else float)(value.rstrip("."))
        except ValueError:
            return None
    return (
        value if value and not _WORDS.fullmatch(value) and (not argument.choices or value in argument.choices) else None
    )


def changes_of(advice: Sequence[Advice]) -> Iterator[Mapping[str, Any]]:
    """Yields the changes that sentences ask for, each on its own."""
    for one in advice:
        yield from ({name: value} for name, value in one.changes.items())
