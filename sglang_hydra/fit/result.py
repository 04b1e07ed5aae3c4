"""The result of a fit: numbers only, for the fullest GPU. Sizes are bytes unless a name says otherwise; None is
unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.fit.kv import KvKind
from sglang_hydra.fit.overheads import GIB, Range
from sglang_hydra.text.json_types import EMPTY, Json, JsonDict
from sglang_hydra.text.words import no_attribute


def gib(size: float | None) -> float | None:
    """Converts bytes to GiB."""
    return None if size is None else size / GIB


class Wanted(NamedTuple):
    """The wanted capacity: ``users`` concurrent requests (None: one) of ``context`` tokens (None: the longest that the
    server takes)."""

    context: int | None = None
    users: int | None = None


NOTHING_STATED = Wanted()


def requests_of(number: int, context: int) -> str:
    """Formats ``1,180 requests of 2,048 tokens``."""
    return f"{number:,} request{'' if number == 1 else 's'} of {context:,} tokens"


class Weights(NamedTuple):
    """The weights on one GPU of the fullest pipeline stage.

    ``parts`` maps names (``tensors.PARTS``) to bytes, None where a fact is missing. ``total`` is the server's logged
    "mem usage" of loading; the real value may be up to ``error`` more, and ``slack`` less. ``loading`` is the peak
    while loading, more than ``total`` where weights are quantized on the GPU. ``stages`` are the totals of all pipeline
    stages, first to last."""

    parts: Mapping[str, float | None]
    total: float | None
    error: float
    slack: float
    loading: float | None
    format: str | None
    source: str
    stages: tuple[float, ...] = ()


class KvCache(NamedTuple):
    """The KV cache of one GPU.

    ``kinds`` are the caches by kind of layer, ``bytes_per_token`` their sum, ``element`` the bytes of one element.
    ``profiled`` is the capacity in tokens that the memory allows, ``tokens`` the server's max_total_num_tokens (0 or
    less: it refuses to start), ``sliding_tokens`` the capacity of a separate pool for sliding windows, ``longest`` the
    tokens of the longest request that this pool allows (None: any), and what happens to a longer one. ``size`` is the
    pool's bytes, ``state`` those of linear attention's states, ``slots`` the requests that the server has rows for."""

    kinds: tuple[KvKind, ...]
    bytes_per_token: float
    element: float
    context: int
    profiled: int | None = None
    tokens: int | None = None
    sliding_tokens: int | None = None
    longest: tuple[int, str] | None = None
    size: float | None = None
    state: float = 0.0
    slots: int | None = None

    @property
    def is_taken_by_requests(self) -> bool:
        """Returns whether the requests' states leave no memory for a token."""
        return self.tokens is not None and self.tokens <= 0 and (self.size or 0) + self.state > 0


@dataclass(frozen=True, slots=True)
class Interval:
    """The working values of mem_fraction_static. Empty where ``low`` is above ``high``; each end has its reason."""

    low: float
    high: float
    low_reason: str
    high_reason: str

    @property
    def empty(self) -> bool:
        return self.low > self.high

    def __contains__(self, fraction: float) -> bool:
        return self.low <= fraction <= self.high


class Colocated(NamedTuple):
    """The memory of one GPU that server and trainer share, in bytes. ``paused`` is what the server keeps after it
    released its memory, ``trainer`` what the trainer keeps while the server works (``parts`` names its parts).
    ``train`` and ``sync`` are the trainer's limits: while the server is paused, and while its weights are back for an
    update. ``left`` is unused after the KV cache is back, within ``error``; ``highest`` is the largest
    mem_fraction_static that can come back. ``held`` names pools that the release never frees. None: unknown."""

    paused: float | None
    trainer: float
    parts: str
    train: float | None
    sync: float | None
    left: float | None
    error: float
    highest: float | None
    held: tuple[str, ...]

    def rows(self) -> Iterator[tuple[str, float | None, str]]:
        """Yields name, size and note of each figure, as the screen shows them."""
        yield "server paused", self.paused, ", ".join(("CUDA context, workspaces, CUDA graphs", *self.held))
        yield "trainer", self.trainer, self.parts
        yield "to train", self.train, "for all of the trainer while the server is paused"
        yield "to sync", self.sync, "for the trainer while the weights are back, before the KV cache is"
        yield "left", self.left, f"when all is back, within {self.error / GIB:.1f}"

    def to_json(self) -> JsonDict:
        """Returns sizes in GiB, rounded to four decimals; null if unknown."""
        return {
            **_sizes(self, "paused", "trainer", "train", "sync", "left", "error"),
            "highest_fraction": self.highest,
            "held": list(self.held),
        }


class Fit(NamedTuple):
    """Whether a server fits into the memory of its GPUs, and how it uses the memory of each.

    ``fits`` is False where even the least need of the server exceeds the memory, or where the requests' states leave
    the KV cache no token (``reasons``), None where a needed fact is unknown (``unknown`` names it); ``tight``: it fits,
    but not with the likeliest numbers. ``memory`` is the GPU's, ``free`` the memory before loading, after the CUDA
    context and ``reserved``. ``asked`` is mem_fraction_static, ``fraction`` the one in effect. ``left`` is unused
    memory (negative: missing memory), within ``error``. ``colocated`` describes a trainer on the same GPU, if any.
    ``sources`` names the source of each number's formula."""

    fits: bool | None
    tight: bool
    reasons: tuple[str, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]
    gpus: int
    replicas: int
    memory: float | None
    before_loading: Range | None
    free: Range | None
    reserved: float
    asked: float | None
    fraction: float | None
    weights: Weights
    lora: float | None
    kv: KvCache | None
    draft: Range | None
    request_table: float | None
    workspace: float | None
    libraries: Range | None
    graphs: Range | None
    activations: Range | None
    left: float | None
    error: float | None
    interval: Interval | None
    running: int | None
    colocated: Colocated | None = None
    sources: Mapping[str, str] = EMPTY

    @property
    def error_gib(self) -> float | None:
        """Returns the error of ``left``, in GiB."""
        return gib(self.error)

    @property
    def kv_tokens(self) -> int | None:
        """Returns the tokens of one replica's KV cache; None where unknown, 0 where there is no memory for a token."""
        return None if self.kv is None or self.kv.tokens is None else max(0, self.kv.tokens)

    def concurrent_requests(self, context: int) -> int | None:
        """Returns the requests of ``context`` tokens that run at a time on the whole server; None if unknown."""
        tokens = self.kv_tokens
        if tokens is None or self.kv is None or context < 1:
            return None
        most = tokens // context
        limits = [limit for limit in (self.running, self.kv.slots) if limit is not None]
        return min([most, *limits]) * self.replicas

    def shortage(self, wanted: Wanted) -> str | None:
        """Returns the missing capacity in words; None where nothing is missing, or nothing is known."""
        tokens = self.kv_tokens
        if tokens is None or self.kv is None or not self.kv.context:
            return None
        context, named = wanted.context or self.kv.context, "fit.context" if wanted.context else "the longest it takes"
        if context > self.kv.context:
            return (
                f"a request of {context:,} tokens (fit.context) is longer than this server takes: {self.kv.context:,}"
            )
        if tokens < context:
            where = " of each replica" if self.replicas > 1 else ""
            return f"the KV cache{where} holds {tokens:,} tokens, less than one request of {context:,} ({named})"
        if self.kv.longest is not None and self.kv.longest[0] < context:
            most, end = self.kv.longest
            return f"a request of more than {most:,} tokens {end}, and {context:,} are needed ({named})"
        requests = self.concurrent_requests(context) or 0
        if requests < (wanted.users or 1):
            users, held = wanted.users or 1, requests_of(requests, context)
            servers = f": {-(-users // requests):,} servers like this one hold them" if requests else ""
            return f"capacity for {held} at a time, and {users:,} are needed (fit.users){servers}"
        return None

    def to_json(self) -> JsonDict:
        """Returns plain values: sizes in GiB rounded to four decimals, null if unknown."""
        return {
            "fits": self.fits,
            "tight": self.tight,
            "reasons": list(self.reasons),
            "unknown": list(self.unknown),
            "notes": list(self.notes),
            "gpus": self.gpus,
            "replicas": self.replicas,
            "mem_fraction_static": self.asked,
            "kept_fraction": self.fraction,
            **_sizes(self, "memory", "free", "before_loading", "reserved"),
            "weights": {
                "parts_gib": {name: _gib(size) for name, size in self.weights.parts.items()},
                **_sizes(self.weights, "total", "error", "slack", "loading"),
                "format": self.weights.format,
                "source": self.weights.source,
            },
            **_sizes(self, "lora", "draft"),
            "kv_cache": None if self.kv is None else _kv(self.kv),
            **_sizes(self, "request_table", "workspace", "libraries"),
            "cuda_graphs_gib": _gib(self.graphs),
            **_sizes(self, "activations", "left", "error"),
            "interval": None if self.interval is None else _interval(self.interval),
            "kv_tokens": self.kv_tokens,
            **({} if self.colocated is None else {"colocated": self.colocated.to_json()}),
            "sources": dict(self.sources),
        }


if not TYPE_CHECKING:
    Fit.__getattr__ = no_attribute


def _kv(kv: KvCache) -> dict[str, object]:
    return {
        "bytes_per_token": round(kv.bytes_per_token, 6),
        "kinds": [kind._asdict() for kind in kv.kinds],
        "element_bytes": kv.element,
        "tokens": kv.tokens,
        "sliding_tokens": kv.sliding_tokens,
        **_sizes(kv, "size", "state"),
        "context_length": kv.context,
        "request_slots": kv.slots,
    }


def _interval(interval: Interval) -> dict[str, object]:
    return {
        "low": interval.low,
        "high": interval.high,
        "empty": interval.empty,
        "low_reason": interval.low_reason,
        "high_reason": interval.high_reason,
    }


def _gib(size: float | Range | None) -> Json:
    if isinstance(size, Range):
        return {name: _gib(getattr(size, name)) for name in ("low", "mid", "high")}
    return None if size is None else round(size / GIB, 4)


def _sizes(of: object, *names: str) -> JsonDict:
    return {f"{name}_gib": _gib(getattr(of, name)) for name in names}
