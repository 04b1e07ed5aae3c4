"""The KV cache that a server really has, against the one that the memory fit foresaw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import printable
from sglang_hydra.text.words import number

if TYPE_CHECKING:
    from sglang_hydra.facts.gpu import GpuFacts
    from sglang_hydra.fit.result import Fit
    from sglang_hydra.planning.comparing.difference import Difference
    from sglang_hydra.planning.plan import Plan

_GIB = 1 << 30
_REPORTED = "max_total_num_tokens"
_SIZING = ("mem_fraction_static", "kv_cache_dtype", "max_total_tokens", "tp_size", "pp_size", "page_size")
"""Arguments that the size of the pool depends on."""


@dataclass(frozen=True)
class KvTokens:
    """Tokens that the KV cache of one replica holds: as foreseen (``planned``, between ``low`` and ``high`` by the
    fit's error), and as the server reports (``actual``). The first three are None where there is no fit, and ``note``
    says why."""

    actual: int
    planned: int | None = None
    low: int | None = None
    high: int | None = None
    note: str | None = None
    finding: Finding | None = None

    @property
    def as_planned(self) -> bool | None:
        """None where nothing was foreseen."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.actual <= self.high

    @property
    def text(self) -> str:
        if self.planned is None or self.low is None or self.high is None:
            return f"KV cache: {self.actual:,} tokens; {self.note}"
        span = f"{self.planned:,}" if self.low == self.high else f"{self.planned:,} ({self.low:,} to {self.high:,})"
        verdict = "as predicted" if self.as_planned else "not as predicted"
        return f"KV cache: {self.actual:,} tokens, {verdict}: {span}"

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("actual", "planned", "low", "high", "as_planned", "note")}


def kv_tokens(
    plan: Plan,
    info: Mapping[str, Any],
    differences: Sequence[Difference],
    version: str,
    machine: GpuFacts | None = None,
) -> KvTokens | None:
    """The server's ``max_total_num_tokens`` against the fit; None where it reports no such number."""
    actual = info.get(_REPORTED)
    if not isinstance(actual, int) or isinstance(actual, bool):
        return None
    if plan.gpu.device == "cpu" or plan.gpu.memory_mib is None:
        return KvTokens(actual, note="there is no memory fit on the CPU" if plan.gpu.device == "cpu" else _no_fit(plan))
    found = plan.fit
    if found is None or found.kv_tokens is None or found.weights.total is None:
        return KvTokens(actual, note=_no_fit(plan))
    low, high = _error_bar(found, plan.values.get("max_total_tokens"))
    planned = found.kv_tokens
    if low <= actual <= high:
        return KvTokens(actual, planned, low, high)
    reasons = "; ".join(_reasons(plan, found, info, differences, version, machine, actual)) or "the reason is not known"
    message = f"the KV cache has {actual:,} tokens, and the fit foresaw {planned:,} ({low:,} to {high:,}): {reasons}"
    finding = Finding("warning", "ACT002", message, ("mem_fraction_static",), _hint(actual, planned))
    return KvTokens(actual, planned, low, high, finding=finding)


def _error_bar(found: Fit, limit: int | None) -> tuple[int, int]:
    """The least and the most tokens that the fit's errors allow.

    Weights and the memory that is free before loading may be off; both go into the pool's size, the latter times the
    fraction. ``limit`` is max_total_tokens, which holds the pool down.
    """
    assert found.kv is not None
    assert found.free is not None
    assert found.fraction is not None
    each = max(1, found.kv.bytes_per_token)
    down = (found.fraction * (found.free.mid - found.free.low) + found.weights.error) / each
    up = (found.fraction * (found.free.high - found.free.mid) + found.weights.slack) / each
    tokens = found.kv_tokens or 0
    profiled = found.kv.profiled if found.kv.profiled is not None else tokens
    # A page at most is lost to rounding, and pages are small against either.
    low, high = min(tokens, int(profiled - down)), int(max(profiled, tokens) + up)
    return (max(0, low), min(high, limit)) if limit else (max(0, low), high)


def _reasons(
    plan: Plan,
    found: Fit,
    info: Mapping[str, Any],
    differences: Sequence[Difference],
    version: str,
    machine: GpuFacts | None,
    actual: int,
) -> Iterator[str]:
    """What may have moved the number, the surest first."""
    for item in differences:
        if item.key in _SIZING:
            yield f"{item.key} is {item.after} and not {item.before}"
    if machine is not None and machine.memory_mib and plan.gpu.memory_mib and machine.memory_mib != plan.gpu.memory_mib:
        yield f"this machine's GPU has {number(machine.memory_mib)} MiB, planned for {number(plan.gpu.memory_mib)}"
    weights = _logged_weights(info)
    total, fraction = found.weights.total, found.fraction
    assert total is not None
    assert fraction is not None
    assert found.kv is not None
    if weights is not None and not total - found.weights.slack <= weights * _GIB <= total + found.weights.error:
        yield f"the weights take {weights:.1f} GiB, and the fit says {total / _GIB:.1f}"
    if version != SPECIFIED_VERSION:
        yield f"{printable(version)} may size its pool by other rules than {SPECIFIED_VERSION}"
    if found.unknown:
        yield f"unknown to the fit: {', '.join(found.unknown)}"
    if actual < (found.kv_tokens or 0):
        missing = ((found.kv_tokens or 0) - actual) * found.kv.bytes_per_token / max(fraction, 0.01)
        yield f"something else may hold {missing / _GIB:.1f} GiB of the GPU's memory"
    else:
        yield "more memory was free than the fit assumes"


def _logged_weights(info: Mapping[str, Any]) -> float | None:
    """GiB that the first scheduler says its weights take."""
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], Mapping) else {}
    usage = state.get("memory_usage")
    weight = usage.get("weight") if isinstance(usage, Mapping) else None
    return float(weight) if isinstance(weight, (int, float)) and not isinstance(weight, bool) and weight > 0 else None


def _no_fit(plan: Plan) -> str:
    unknown = plan.fit.unknown if plan.fit is not None else ()
    if unknown:
        return f"the fit does not know {', '.join(unknown)}"
    return "there is no memory fit to compare with"


def _hint(actual: int, planned: int) -> str:
    if actual < planned:
        return "nvidia-smi shows what else is on the GPU; mem_fraction_static and max_total_tokens size the pool"
    return "gpu=auto plans for this machine's own memory"
