"""Computes the hardware's limit: a server's speed if only memory, arithmetic and links took time.

A decode step reads the weights once and the cache of every running request, and multiplies every token with the weights
that it uses (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009):

    bytes(B, ctx) = weights + experts * (1 - (1 - k/E)^tokens) + B * (cache(ctx) + state)       of one GPU
    step(B)       = max(bytes / bandwidth, FLOPs / peak, exchanged / link)
    TPOT         >= step(B) / T                 T tokens a step: 1, with speculation one more than are drafted
    tokens/s     <= B * T / step(B)             FLOPs of prompts that are not cached are added
    TTFT         >= max(FLOPs of the prompt / (GPUs * peak), weights / bandwidth)

Every figure is a lower bound of the bytes and FLOPs: weights as the checkpoint stores them, without padding, tables,
draft models and vision towers; experts as often as an even choice selects them; attention without its softmax."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

from sglang_hydra.text.json_types import JsonDict

MEMORY, COMPUTE, LINK = "memory", "compute", "link"
BANDWIDTH = "gpu.memory_bandwidth_gbps"  # the fact that every time needs


class Cache(NamedTuple):
    """Layers with the same kind of cache. ``bytes_per_token`` on each GPU; ``flops`` of one token that reads one cached
    token, all layers and GPUs together; ``most`` cached tokens that a token reads (window, top-k; None: all)."""

    kind: str
    bytes_per_token: float
    flops: float
    most: int | None = None

    def read(self, context: float) -> float:
        """Returns the cached tokens that one token reads after ``context`` tokens."""
        return context if self.most is None else min(context, self.most)

    def pairs(self, tokens: float) -> float:
        """Returns the cached tokens that all tokens of a prompt of ``tokens`` read."""
        full = self.read(tokens)
        return full * full / 2 + (tokens - full) * full


class Work(NamedTuple):
    """Weights that each token multiplies, 2 FLOPs each: their number in the whole model, and one GPU's peak for this
    format in FLOP/s. ``sampled``: only tokens whose next token is predicted use them (lm_head)."""

    format: str
    weights: float
    peak: float
    sampled: bool = False


class Step(NamedTuple):
    """One decode step: its least seconds for memory, arithmetic and links, and their terms. Bytes are those of one GPU,
    FLOPs of all GPUs of a copy; one copy runs ``requests``, each with ``context`` cached tokens."""

    requests: float
    context: float
    seconds: dict[str, float]
    bytes: dict[str, float]
    flops: float
    exchanged: float

    @property
    def bound(self) -> str:
        return max(self.seconds, key=lambda name: self.seconds[name])

    @property
    def time(self) -> float:
        """Returns the least seconds of the step: the largest of its terms."""
        return self.seconds[self.bound]


class Load(NamedTuple):
    """Prompts of ``input_len`` and answers of ``output_len`` tokens, with ``requests`` running at a time on the whole
    server. ``cached`` is the share of a prompt in the prefix cache (None: unknown)."""

    input_len: float
    output_len: float
    requests: float
    cached: float | None = 0.0

    @property
    def context(self) -> float:
        """Returns a request's cached tokens in the middle of its answer."""
        return self.input_len + self.output_len / 2


class Limit(NamedTuple):
    """The limits of a load: output tokens/s of one GPU and their bound, the least TPOT with one running request and
    with all, the least TTFT and its bound (None where cache hits are unknown). Times in seconds."""

    tokens_per_gpu: float
    bound: str
    tpot_one: float
    tpot_all: float
    ttft: float | None
    ttft_bound: str | None


@dataclass(frozen=True, slots=True)
class Roofline:
    """A server's bytes and FLOPs per step, and the peaks of its GPUs.

    ``bandwidth`` is that of one GPU's memory and ``link`` that to other GPUs, in bytes/s (0: unknown); ``peak`` is the
    FLOP/s of its attention. ``gpus`` hold one copy of the model, ``copies`` counts the copies, and ``replicas`` of a
    copy divide its requests (DP attention). ``weights`` and ``experts`` are bytes on one GPU (the mean of its
    ``stages``), ``state`` those of one request; ``exchanged`` bytes leave a GPU for each token. For each request a step
    yields at most ``tokens`` and processes ``verified`` tokens."""

    gpu: str
    bandwidth: float
    peak: float
    link: float
    gpus: int
    copies: int
    replicas: int
    stages: int
    weights: float
    experts: float
    expert_number: int
    expert_chosen: int
    caches: tuple[Cache, ...]
    state: float
    work: tuple[Work, ...]
    exchanged: float
    tokens: int = 1
    verified: int = 1

    def touched(self, tokens: float) -> float:
        """Returns the share of the routed experts that ``tokens`` select, with even choice: E[1 - (1 - k/E)^tokens]."""
        if not self.expert_number:
            return 0.0
        return 1.0 - float((1.0 - self.expert_chosen / self.expert_number) ** tokens)

    def step(self, requests: float, context: float) -> Step:
        """Returns a decode step with ``requests`` on the whole server. With pipeline stages it covers all stages, each
        of which works on its share of the requests."""
        mine = max(1.0, requests / self.copies)
        batch = max(1.0, mine / self.stages)
        tokens = batch * self.verified
        local = max(1.0, batch / self.replicas)
        parts = {
            "weights": self.weights,
            "experts": self.experts * self.touched(tokens),
            "KV cache": local * sum(cache.bytes_per_token * cache.read(context) for cache in self.caches),
            "states": local * self.state,
        }
        flops = tokens * sum(2 * work.weights for work in self.work)
        looking = tokens * sum(cache.flops * cache.read(context) for cache in self.caches)
        compute = sum(2 * work.weights * tokens / work.peak for work in self.work)
        if self.peak:
            compute += looking / self.peak
        sent = tokens * self.exchanged
        seconds = {
            MEMORY: sum(parts.values()) / self.bandwidth * self.stages,
            COMPUTE: compute / self.gpus * self.stages,
        }
        if self.link and sent:
            seconds[LINK] = sent / self.link * self.stages
        return Step(mine, context, seconds, parts, flops + looking, sent)

    def prefill(self, tokens: float) -> dict[str, float]:
        """Returns the least seconds of a prompt of ``tokens`` uncached tokens, by bound."""
        compute = sum(2 * work.weights * (1 if work.sampled else tokens) / work.peak for work in self.work)
        if self.peak:
            compute += sum(cache.flops * cache.pairs(tokens) for cache in self.caches) / self.peak
        read = (self.weights + self.experts * self.touched(tokens)) * self.stages
        seconds = {MEMORY: read / self.bandwidth, COMPUTE: compute / self.gpus}
        if self.link and self.exchanged:
            seconds[LINK] = tokens * self.exchanged / self.link
        return seconds

    def limit(self, load: Load) -> Limit:
        """Returns the limits of a load. Throughput uses the largest term, as if reading, computing and sending always
        overlapped and all drafted tokens were accepted."""
        step = self.step(load.requests, load.context)
        each = {name: seconds / (max(step.requests, 1.0) * self.tokens) for name, seconds in step.seconds.items()}
        prefill = {} if load.cached is None else self.prefill(load.input_len * (1 - load.cached))
        for name in (COMPUTE, LINK):
            if name in each and load.output_len:
                each[name] += prefill.get(name, 0.0) / load.output_len
        bound = max(each, key=lambda name: each[name])
        slowest = max(prefill, key=lambda name: prefill[name]) if prefill else None
        return Limit(
            tokens_per_gpu=1 / (each[bound] * self.gpus),
            bound=bound,
            tpot_one=self.step(1, load.context).time / self.tokens,
            tpot_all=step.time / self.tokens,
            ttft=prefill[slowest] if slowest else None,
            ttft_bound=slowest,
        )

    def to_json(self) -> JsonDict:
        """Returns plain numbers, in bytes, FLOP/s and bytes/s."""
        record = asdict(self)
        return {**record, "caches": [c._asdict() for c in self.caches], "work": [w._asdict() for w in self.work]}


def roofline_from(record: JsonDict) -> Roofline:
    """Reads a roofline from the record of ``to_json``. Raises TypeError or KeyError for another record."""
    caches, work = (Cache(**item) for item in record["caches"]), (Work(**item) for item in record["work"])
    return Roofline(**{**record, "caches": tuple(caches), "work": tuple(work)})
