"""Adapts the general advice of a failure class to the arguments that the failed server already had."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import cast

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.tables.successors import name_in
from sglang_hydra.arguments.tables.table import known_versions
from sglang_hydra.run.diagnose.classes import as_typed
from sglang_hydra.run.diagnose.log_advice import LogNumbers
from sglang_hydra.text.budget import quick_load

_TYPED = re.compile(r"([a-z][a-z0-9_]*)=([\w.]+)(.*)", re.DOTALL)
_FRACTION = "mem_fraction_static"
# A smaller value takes less memory.
_SMALLER = ("chunked_prefill_size", "cuda_graph_max_bs", "max_running_requests")
# A larger value helps more; a value that was not enough is doubled.
_LARGER = ("tp_size", "nnodes", "dist_timeout", "watchdog_timeout")
_STEP, _LEAST, _MOST = 0.05, 0.2, 0.97
_LOW_ENOUGH = 0.85
_WORDS = {"true": True, "false": False, "null": None}


def fitted(
    advice: Sequence[str], args: Mapping[str, object] | None, numbers: LogNumbers | None = None
) -> Sequence[str]:
    """Adapts ``advice`` to a server with ``args``. Drops a value that the server had, a change in the wrong direction,
    and a value that the ``numbers`` of its log rule out. Returns all of ``advice`` when nothing is left."""
    parts = list(map(as_typed, advice))
    kept = [better for part in parts if (better := _better(part, args or {}, numbers or LogNumbers())) is not None]
    return kept or parts


def with_costs(advice: Sequence[str], kind: str) -> list[str]:
    """Adds to each change of an argument in ``advice`` what it costs in this class of failure."""
    return [_with_cost(part, kind) for part in advice]


def in_release(advice: Sequence[str], version: str | None) -> Sequence[str]:
    """Renames the arguments in ``advice`` to their names in ``version``, and drops those that ``version`` lacks."""
    if version not in known_versions():
        return advice
    return [part for part in (_renamed(part, version) for part in advice) if part] or advice


def _renamed(part: str, version: str) -> str | None:
    found = _TYPED.match(part)
    if found is None or found[1] not in FIELDS:
        return part
    name = name_in(found[1], version)
    return None if name is None else name + part[len(found[1]) :]


def _with_cost(part: str, kind: str) -> str:
    found = _TYPED.match(part)
    if found is None or "cost" in part:
        return part
    cost = _costs().get(kind, {}).get(found[1]) or _costs()["any"].get(found[1])
    return f"{part} (costs {cost})" if cost else part


@cache
def _costs() -> Mapping[str, Mapping[str, str]]:
    text = Path(__file__).with_name("costs.yaml").read_text(encoding="utf-8")
    return cast("Mapping[str, Mapping[str, str]]", quick_load(text))


def _better(part: str, args: Mapping[str, object], numbers: LogNumbers) -> str | None:
    found = _TYPED.match(part)
    if found is None:
        return part
    name, advised, rest = found[1], found[2].rstrip("."), found[3]
    value = _number(advised)
    ranks = _whole(args.get("tp_size"))
    if name == _FRACTION and value is not None:
        return _better_fraction(part, value, args.get(name), rest, numbers)
    if name == "context_length" and (longest := numbers.tokens if "KV cache" in rest else numbers.derived):
        return f"context_length={longest}{rest}"
    if name == "tp_size" and value is not None and (more := numbers.ranks_beyond(ranks)):
        return f"tp_size={more[0]}, with weights of {more[1]:.1f} GB for each GPU"
    if name == "hicache_size" and numbers.host_free_gb:
        here = max(1, ranks // _whole(args.get("nnodes")))  # ranks that share the host memory of a node
        return f"hicache_size={int(numbers.host_free_gb * 0.8 / here) or 1}{rest}"
    if name not in args:
        return part
    had = args[name]
    if advised in _WORDS:
        return None if had is _WORDS[advised] else part
    if had == advised:
        return None
    if value is None or isinstance(had, bool) or not isinstance(had, int | float):
        return part
    if name in _LARGER and had >= value:
        return f"{name}={had * 2:g}{rest}"
    return None if had == value or (name in _SMALLER and 0 < had <= value) else part


def _better_fraction(part: str, advised: float, had: object, rest: str, numbers: LogNumbers) -> str | None:
    """Returns the advice with a mem_fraction_static that differs from ``had`` and fits the log; None without one."""
    if isinstance(had, bool) or not isinstance(had, int | float):
        had = None
    if had is not None and advised < _LOW_ENOUGH and (worked := numbers.lower_fraction(float(had))) is not None:
        tokens = numbers.tokens_at(float(had), worked)
        return f"{_FRACTION}={worked:.2f}{f', with {tokens:,} tokens of KV cache' if tokens else ''}"
    other = advised if had is None else _fraction(advised, float(had))
    least = numbers.least_fraction
    if least is not None and advised >= _LOW_ENOUGH:
        other = max(other or 0, min(_MOST, round(least + _STEP, 2)))
    if other is None or not numbers.possible(other):
        return None
    return part if other == advised else f"{_FRACTION}={other:.2f}".rstrip("0") + rest


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _fraction(advised: float, had: float) -> float | None:
    """Returns ``advised``, or one step beyond ``had``: down when ``advised`` is low, up when it is high. Returns None
    beyond the limits."""
    if advised < _LOW_ENOUGH:
        return min(advised, lower) if (lower := round(had - _STEP, 2)) >= _LEAST else None
    return max(advised, higher) if (higher := round(had + _STEP, 2)) <= _MOST else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
