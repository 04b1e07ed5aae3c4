"""Derives the verdict from sizes: the memory left, the working fractions, and certain failures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sglang_hydra.architecture.understanding import Understanding
from sglang_hydra.fit.kv import Cells
from sglang_hydra.fit.overheads import GIB, NOTHING, Range, about, exactly
from sglang_hydra.fit.result import Fit, Interval, KvCache, Weights
from sglang_hydra.text.json_types import JsonObject, json_beside

_HIGHEST = 0.999
"""The largest fraction, below 1."""
_sources = lru_cache(maxsize=1)(json_beside)


class Memory(NamedTuple):
    """A GPU's memory in bytes, as far as known: the total, the part used before loading, the free part."""

    total: float | None
    before_loading: Range | None
    free: Range | None
    reserved: float


@dataclass(slots=True, repr=False, eq=False)
class Need:
    """All memory needs of one GPU, in bytes; None is unknown.

    ``fraction`` is the one in effect. ``least_state`` are the fewest states with which the server starts.
    ``headroom`` is what speculative decoding adds to the pool beyond the static part; negative where the draft is
    inside it. ``counted`` is the draft's part that a release counts before it sizes the pool: its weights, with an
    embedding and a head that the target's replace later. ``window_floor``: the tokens of the pool for sliding
    windows, and those that one request needs there; with fewer the release refuses to start, or every request waits
    forever (``window_hangs``)."""

    known: Understanding
    values: JsonObject
    weights: Weights
    lora: float | None
    draft: float | None
    fraction: float | None = None
    cells: Cells | None = None
    kv: KvCache | None = None
    state: float = 0.0
    least_state: float = 0.0
    headroom: float = 0.0
    counted: float = 0.0
    window_floor: tuple[int, int] | None = None
    window_hangs: bool = False
    draft_cache: float = 0.0
    request_table: float = 0.0
    workspace: float = 0.0
    libraries: Range = NOTHING
    graphs: Range | None = None
    activations: Range | None = None

    @property
    def before_cache(self) -> float | None:
        """Returns the bytes used before the KV cache is made, or None."""
        return None if self.weights.total is None or self.lora is None else self.weights.total + self.lora

    @property
    def at_least(self) -> float:
        """Returns the bytes of weights and adapters; a lower bound where a part is unknown."""
        if self.weights.total is not None:
            return self.weights.total + (self.lora or 0.0)
        return sum(size for size in self.weights.parts.values() if size is not None)

    @property
    def after_cache(self) -> Range | None:
        """Returns the memory allocated after the KV cache; a draft of unknown size counts as 0."""
        if self.graphs is None or self.activations is None:
            return None
        tables = exactly(self.request_table + self.workspace) + self.libraries
        return tables + self.drafting + self.graphs + self.activations

    @property
    def drafting(self) -> Range:
        """Returns the draft model with its own KV cache."""
        return about(self.draft or 0.0, 0.98, 1.02) + exactly(self.draft_cache)

    @property
    def page(self) -> float:
        """Returns the bytes of the smallest pool: one page."""
        return float((self.values.get("page_size") or 1) * self.cells.bytes_per_token) if self.cells else 0.0


def judge(need: Need, memory: Memory) -> Fit:
    """Returns the verdict with every number that led to it."""
    known, values = need.known, need.values
    interval = interval_of(need, memory.free)
    reasons = _surely_fails(need, memory.free) or _without_room(need.kv, need.fraction)
    fits = False if reasons else None if known.unknown else True
    fraction = values.get("mem_fraction_static")
    left, error = _left(need, memory.free)
    running = values.get("max_running_requests")
    return Fit(
        fits=fits,
        tight=fits is True and interval is not None and fraction is not None and fraction not in interval,
        reasons=tuple(reasons),
        unknown=tuple(dict.fromkeys(known.unknown)),
        notes=tuple(known.notes),
        gpus=known.ranks.all_gpus,
        replicas=known.ranks.replicas,
        memory=memory.total,
        before_loading=memory.before_loading,
        free=memory.free,
        reserved=memory.reserved,
        asked=None if fraction is None else float(fraction),
        fraction=need.fraction,
        weights=need.weights,
        lora=need.lora,
        kv=need.kv,
        draft=None if need.draft is None else need.drafting,
        request_table=need.request_table if need.kv is not None else None,
        workspace=need.workspace if need.kv is not None else None,
        libraries=need.libraries if need.kv is not None else None,
        graphs=need.graphs,
        activations=need.activations,
        left=left,
        error=error,
        interval=interval,
        running=int(running) // known.ranks.groups if running else None,
        sources=_sources(__file__),
    )


def _surely_fails(need: Need, free: Range | None) -> list[str]:
    """Returns why the server fails even with its least need and the most free memory; [] where it may work."""
    if free is None:
        return []
    held = need.at_least
    least = max(0.0, held - need.weights.slack)
    if least > free.high:
        return [f"the weights need {_gib(held)} on each GPU, and {_gib(free.mid)} are free there"]
    loading = need.weights.loading or 0.0
    if loading - need.weights.slack > free.high:
        return [
            f"while loading, before they are quantized, the weights need {_gib(loading)} on each GPU, and "
            f"{_gib(free.mid)} are free there"
        ]
    if need.fraction is None:
        return []
    reasons = []
    if free.high * need.fraction - least - need.counted - need.least_state <= need.page:
        states = f" and {_gib(need.least_state)} of states" if need.least_state else ""
        states = f", {_gib(need.counted)} of the draft{states}" if need.counted else states
        reasons.append(
            f"mem_fraction_static={need.fraction:.3g} of {_gib(free.mid)} is {_gib(free.mid * need.fraction)}: "
            f"{_gib(held)} of weights{states} leave nothing for the KV cache"
        )
    if need.window_floor is not None and need.window_floor[0] <= need.window_floor[1]:
        tokens, least_tokens = need.window_floor
        hangs = "; releases before 0.5.20 start, and every request waits for ever" if need.window_hangs else ""
        reasons.append(
            f"the pool for sliding windows holds {tokens:,} tokens, and one request needs more than {least_tokens:,} "
            f"there (swa_full_tokens_ratio){hangs}"
        )
    after = need.after_cache
    if after is not None and after.low > _outside(need, need.fraction, free.high, least):
        reasons.append(
            f"mem_fraction_static={need.fraction:.3g} leaves {_gib(_outside(need, need.fraction, free.mid, held))} "
            f"outside weights and KV cache, and CUDA graphs, activations and tables need {_gib(after.mid)}"
        )
    return reasons


def _without_room(kv: KvCache | None, fraction: float | None) -> list[str]:
    """Returns why a server whose weights leave memory can serve no request: the requests' states take everything, or no
    slot exists."""
    if kv is None or fraction is None:
        return []
    if kv.is_taken_by_requests:
        return [
            f"mem_fraction_static={fraction:.3g}: what requests keep beside their tokens leaves no memory for a token "
            "in the KV cache"
        ]
    return ["the server has no slot for a request"] if kv.slots == 0 else []


def _outside(need: Need, fraction: float, free: float, held: float) -> float:
    """Returns the memory outside the static part: less the pool's additions for speculative decoding, more where
    max_total_tokens keeps the pool small."""
    outside = free * (1 - fraction) - need.headroom
    limit = need.values.get("max_total_tokens")
    if limit and need.cells is not None:
        outside += max(0.0, free * fraction - held - need.state - limit * need.cells.bytes_per_token)
    return outside


def interval_of(need: Need, free: Range | None) -> Interval | None:
    """Returns the fractions that work with the likeliest numbers, all else as with the requested one."""
    held, after = need.before_cache, need.after_cache
    if held is None or free is None or after is None or free.mid <= 0:
        return None
    asked = need.values.get("mem_fraction_static")
    kept = need.fraction / float(asked) if need.fraction and asked else 1.0
    least = held + need.counted + need.least_state
    outside = after.mid + need.headroom
    low = (least + need.page) / free.mid / kept
    high = (1 - outside / free.mid) / kept
    return Interval(
        low=math.ceil(low * 1000) / 1000,
        high=math.floor(min(high, _HIGHEST) * 1000) / 1000,
        low_reason=f"below, {_gib(least)} of weights leave nothing of {_gib(free.mid)} for the KV cache",
        high_reason=f"above, less than {_gib(max(0.0, outside))} remain for graphs, activations and tables",
    )


def _left(need: Need, free: Range | None) -> tuple[float | None, float | None]:
    """Returns the unused memory and its error, from weights, memory, libraries, graphs and activations as independent
    errors."""
    held, after = need.before_cache, need.after_cache
    if held is None or free is None or after is None or need.fraction is None or need.draft is None:
        return None, None
    size = need.kv.size if need.kv is not None and need.kv.size is not None else 0.0
    ranges = [free, need.libraries, need.drafting, need.graphs or NOTHING, need.activations or NOTHING]
    error = math.hypot(need.weights.error, *((one.high - one.low) / 2 for one in ranges))
    return free.mid - held - need.state - size - after.mid, error


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
