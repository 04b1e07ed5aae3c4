"""The general advice of a class, without what the server that failed had already."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sglang_hydra.text.words import program

_ALTERNATIVE = "; or "
_TYPED = re.compile(r"([a-z][a-z0-9_]*)=([\w.]+)(.*)", re.DOTALL)
_FRACTION = "mem_fraction_static"
# Each of these takes less memory the smaller it is.
_SMALLER = ("chunked_prefill_size", "cuda_graph_max_bs", "max_running_requests")
# Each of these helps more the larger it is; what was not enough is doubled.
_LARGER = ("tp_size", "nnodes", "dist_timeout", "watchdog_timeout")
_STEP, _LEAST, _MOST = 0.05, 0.2, 0.97
_LOW_ENOUGH = 0.85
_WORDS = {"true": True, "false": False, "null": None}


_PROGRAM = re.compile(r"\bsglang-hydra (?=[a-z])")


def as_typed(advice: str) -> str:
    """``advice`` with this program under the name that it was started by."""
    return _PROGRAM.sub(f"{program()} ", advice)


def fitted(advice: str, args: Mapping[str, Any] | None) -> str:
    """``advice`` for a server with ``args``: no value that it had, and none in the wrong direction."""
    advice = as_typed(advice)
    if not args:
        return advice
    kept = [better for part in advice.split(_ALTERNATIVE) if (better := _better(part, args)) is not None]
    return _ALTERNATIVE.join(kept) or advice


def _better(part: str, args: Mapping[str, Any]) -> str | None:
    found = _TYPED.match(part)
    if found is None or found[1] not in args:
        return part
    name, advised, rest = found[1], found[2].rstrip("."), found[3]
    had = args[name]
    if advised in _WORDS:
        return None if had is _WORDS[advised] else part
    if had == advised:
        return None
    value = _number(advised)
    if value is None or isinstance(had, bool) or not isinstance(had, int | float):
        return part
    if name == _FRACTION:
        other = _fraction(value, float(had))
        return None if other is None else f"{name}={other:.2f}".rstrip("0") + rest
    if name in _LARGER and had >= value:
        return f"{name}={had * 2:g}{rest}"
    return None if had == value or (name in _SMALLER and 0 < had <= value) else part


def _fraction(advised: float, had: float) -> float | None:
    """``advised`` is below what most servers have where less helps, and above where more does; None: no room."""
    if advised < _LOW_ENOUGH:
        return min(advised, lower) if (lower := round(had - _STEP, 2)) >= _LEAST else None
    return max(advised, higher) if (higher := round(had + _STEP, 2)) <= _MOST else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
