"""Finds what to type: the advice of a failure class, adapted to the failed server's arguments, and the log's own.

The log's own advice are sentences near the deciding line that ask for a flag, a variable or a command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.secrets import without_secrets
from sglang_hydra.arguments.tables.successors import name_in
from sglang_hydra.arguments.tables.table import Argument, known_versions, release
from sglang_hydra.releases.records import newest_release
from sglang_hydra.run.diagnose.classes import as_typed, read_table
from sglang_hydra.run.diagnose.lines import Line
from sglang_hydra.run.diagnose.log_facts import LogNumbers
from sglang_hydra.text.json_types import Json, JsonObject

_SIZE = re.compile(r"([a-z_]+)=N")
_TYPED = re.compile(r"([a-z][a-z0-9_]*)=([\w.]+)(.*)", re.DOTALL)
# A smaller value takes less memory.
SMALLER = ("chunked_prefill_size", "cuda_graph_max_bs", "max_running_requests")
# A larger value helps more; a value that was not enough is doubled.
_LARGER = ("tp_size", "nnodes", "dist_timeout", "watchdog_timeout")
_STEP, _LEAST, _MOST = 0.05, 0.2, 0.97
_LOW_ENOUGH = 0.85
_CONSTANTS = {"true": True, "false": False, "null": None}


def fitted(
    advice: Sequence[str], args: Mapping[str, object] | None, numbers: LogNumbers | None = None
) -> Sequence[str]:
    """Adapts ``advice`` to a server with ``args``. Drops a value that the server had, a change in the wrong direction,
    and a value that the ``numbers`` of its log rule out. Returns all of ``advice`` when nothing is left."""
    parts = list(map(as_typed, advice))
    kept = [better for part in parts if (better := _better(part, args or {}, numbers or LogNumbers())) is not None]
    return sorted(kept, key=lambda part: not _is_of_a_set_size(part, args or {})) or parts


def _is_of_a_set_size(part: str, args: Mapping[str, object]) -> bool:
    return "if these are set" in part and any(args.get(name) for name in _SIZE.findall(part))


def with_costs(advice: Sequence[str], kind: str) -> list[str]:
    """Adds to each change of an argument in ``advice`` what it costs in this class of failure."""
    names = [found[1] if (found := _TYPED.match(part)) and "cost" not in part else "" for part in advice]
    costs = {**read_table("costs")["any"], **read_table("costs").get(kind, {})}
    return [
        f"{part} (costs {costs[name]})" if name in costs else part for part, name in zip(advice, names, strict=True)
    ]


def in_release(advice: Sequence[str], version: str | None) -> Sequence[str]:
    """Renames the arguments in ``advice`` to their names in ``version``, and drops those that ``version`` lacks."""
    if version not in known_versions():
        return advice
    kept: list[str] = []
    for part in advice:
        found = _TYPED.match(part)
        name = found[1] if found else ""
        new = name_in(name, version) if name in FIELDS else name
        kept += [new + part[len(name) :]] if new is not None else []
    return kept or advice


def _better(part: str, args: Mapping[str, object], numbers: LogNumbers) -> str | None:
    found = _TYPED.match(part)
    if found is None:
        return part
    name, advised, rest = found[1], found[2].rstrip("."), found[3]
    value, had, ranks = _number(advised), args.get(name), _whole(args.get("tp_size"))
    number = None if isinstance(had, bool) or not isinstance(had, int | float) else had
    if name == "mem_fraction_static" and value is not None:
        return _better_fraction(part, value, number, rest, numbers)
    if name == "context_length" and (longest := numbers.tokens if "KV cache" in rest else numbers.derived):
        return f"context_length={longest}{rest}"
    if name == "tp_size" and value is not None and (more := numbers.ranks_beyond(ranks)):
        return f"tp_size={more[0]}, with weights of {more[1]:.1f} GB for each GPU"
    if name == "hicache_size" and numbers.host_free_gb:
        here = max(1, ranks // _whole(args.get("nnodes")))  # ranks that share the host memory of a node
        return f"hicache_size={int(numbers.host_free_gb * 0.8 / here) or 1}{rest}"
    if args and name == "base_gpu_id" and not had:
        return None
    if name in args and (had is _CONSTANTS[advised] if advised in _CONSTANTS else had == advised):
        return None
    if value is None or number is None:
        return part
    if name in _LARGER and number >= value:
        return f"{name}={number * 2:g}{rest}"
    return None if number == value or (name in SMALLER and 0 < number <= value) else part


def _better_fraction(part: str, advised: float, had: float | None, rest: str, numbers: LogNumbers) -> str | None:
    """Returns the advice with a mem_fraction_static that fits the log: below ``had`` for a low ``advised``, else above
    it. Returns None without one."""
    low, other, least = advised < _LOW_ENOUGH, advised, numbers.least_fraction
    if had is not None:
        if low and (worked := numbers.lower_fraction(had)) is not None:
            tokens = numbers.tokens_at(had, worked)
            return f"mem_fraction_static={worked:.2f}{f', with {tokens:,} tokens of KV cache' if tokens else ''}"
        step = round(had - _STEP if low else had + _STEP, 2)
        other = (min if low else max)(advised, step) if _LEAST <= step <= _MOST else 0.0
    if least is not None and not low:
        other = max(other, min(_MOST, round(least + _STEP, 2)))
    if not other or not numbers.possible(other):
        return None
    return part if other == advised else f"mem_fraction_static={other:.2f}".rstrip("0") + rest


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


SAID = "the log advises: "
_BEFORE, _AFTER = {True: 1, False: 4}, 15
"""Lines around the deciding one. Lines with SGLang's header report its work; a library's may explain the error."""
_MOST_SAID, _LONGEST = 3, 240
_ASKS = re.compile(
    r"(?i)\b(?:please|try|use|(?<!not )set|setting|add|pass|(?<!-)(?:en|dis)abl\w+|is required|specify|raise|increas\w+"
    r"|reduc\w+|lower|decreas\w+|re-?install|upgrade|downgrade|run|rerun|consider|export|switch|choose)\b"
)
# Advice beside every error of its kind: conditions that no log shows, switches that only log more, an example, and the
# usage text of a command.
_STOCK = re.compile(
    r"reserved but unallocated|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|NCCL_DEBUG|DYNAMO_VERBOSE|TORCH_LOGS"
    r"|python -m sglang|\[--[a-z]|error: argument --"
)
_NOT = re.compile(r"(?i)\b(?:cannot|can't|must not|not|don't|without|incompatible|ignored?|unrecognized)\b")
_FLAG = re.compile(
    r"(?<![\w-])(--[a-z][a-z0-9-]{2,60})(?:(=| to | above | )['\"`]?(\d[\w.]*|[a-z][a-z0-9_]*)(?![\w-]))?"
)
_VARIABLE = re.compile(
    r"\b((?:SGLANG|SGL|NCCL|MC|CUDA|PYTORCH|TORCH|HF|FLASHINFER|TRITON|TVM|NVSHMEM|UCX|GLOO|OMP|NIXL|MOONCAKE|HSA|AITER|LD)"
    r"_[A-Z0-9_]{2,60})\b"
)
_COMMAND = re.compile(r"\bpip install \S+|\buv pip install \S+|`[a-z][\w-]* [^`]{2,80}`")
_SENTENCE = re.compile(r"(?<=[.;!])\s+(?=\S)")
_MAY = ("--", "_", "pip install", "`")
# Words after a flag that are not its value.
_WORDS = re.compile(r"to|and|or|if|is|in|on|for|with|when|as|a|the|by|of|at|flag|option|instead|should|must")


class Advice(NamedTuple):
    """A sentence of the log, or a change that its failure asks for. ``changes`` maps the arguments that it gives a
    value to that value, by the release's names; ``names`` lists all arguments that it mentions; ``why`` is the
    reason."""

    text: str
    changes: JsonObject
    names: tuple[str, ...] = ()
    why: str = "the log advises it"


def may_advise(text: str) -> bool:
    """Returns whether a line or a sentence may give advice."""
    asks = any(mark in text for mark in _MAY) and _ASKS.search(text) is not None
    return asks and any(pattern.search(text) is not None for pattern in (_FLAG, _VARIABLE, _COMMAND))


def advice_near(
    number: int, lines: Sequence[Line], version: str | None, args: Mapping[str, object] | None
) -> list[Advice]:
    """Returns the advice in the lines around ``number``. Omits flags that the release lacks, and values already set."""
    near = (line for line in lines if number - _BEFORE[line.headed] <= line.number <= number + _AFTER)
    sentences = (sentence.strip() for line in near for sentence in _SENTENCE.split(line.text))
    found: list[Advice] = []
    for advice in (_of(sentence, version, args or {}) for sentence in sentences):
        found += [advice] if advice is not None and advice not in found else []
    return found[:_MOST_SAID]


def _of(sentence: str, version: str | None, args: Mapping[str, object]) -> Advice | None:
    if not may_advise(sentence) or _STOCK.search(sentence):
        return None
    known = version in known_versions()
    table = release(version if version is not None and known else newest_release()).arguments
    changes: dict[str, object] = {}
    names: list[str] = []
    for flag, joint, value in _FLAG.findall(sentence):
        argument = next((one for one in table.values() if flag in one.flags), None)
        if known and argument is None:
            return None  # no flag of this release
        names.append(argument.name if argument is not None else flag[2:].replace("-", "_"))
        wanted = _value(value, argument) if argument is not None and not _NOT.search(sentence) else None
        if argument is None and args.get(names[-1]) is True:
            return None
        if argument is None or wanted is None:
            continue
        if joint == " above " and isinstance(wanted, float):
            wanted = min(_MOST, round(wanted + _STEP, 2))
        if args.get(argument.name) == wanted:
            return None
        changes[argument.name] = wanted
    return Advice(without_secrets(SAID + sentence[:_LONGEST]), changes, tuple(names))


def _value(value: str, argument: Argument) -> Json:
    """Returns the value that a sentence gives an argument, or None."""
    kind = argument.type.partition(" ")[0]
    if kind == "bool":
        return True
    if kind in ("int", "float"):
        number = _number(value.rstrip("."))
        whole = int(number) if number is not None and number.is_integer() else None
        return number if kind == "float" else whole
    fits = value and not _WORDS.fullmatch(value) and (not argument.choices or value in argument.choices)
    return value if fits else None
