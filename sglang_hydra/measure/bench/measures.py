"""Computes the numbers of a point from its requests. Pure: takes seconds, returns milliseconds.

The definitions are those of SGLang's bench_serving (0.5.2, ``calculate_metrics``). TTFT runs from sending to the first
content; in an open loop from the due time, which is our choice. ITL is the gap between contents; a chunk of n tokens
counts as n equal gaps. TPOT is the time after the first token divided by the number of output tokens after it.
Percentiles interpolate between neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field

from sglang_hydra.text.json_types import JsonDict

PERCENTILES = (50, 90, 95, 99)


@dataclass
class Sample:
    """One request as the client saw it. Times are seconds on one clock; ``sent`` is the time of sending.

    ``gaps`` are the times between successive tokens. ``due`` is the planned send time of an open loop; latencies count
    from it. A failed request has an ``error`` and counts nowhere else. Token counts are the server's, or None;
    ``cached_tokens`` of the prompt came from a prefix cache; ``retractions`` counts how often the request left the
    batch and began again; at most ``arrived_tokens`` of the counted output tokens arrived. The client's own delay: it
    sent ``send_delay`` late, the first content may have arrived ``read_delay`` earlier, and (place, count, seconds) in
    ``gap_delays`` may be the client's share of those gaps. ``server_waits`` are the seconds that a process of the
    server waited for a core, before and after the first token; None if uncounted."""

    asked_tokens: int
    sent: float
    due: float | None = None
    first: float | None = None
    end: float = 0.0
    gaps: MutableSequence[float] = field(default_factory=list)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    retractions: int | None = None
    error: str | None = None
    arrived_tokens: int | None = None
    send_delay: float = 0.0
    read_delay: float = 0.0
    gap_delays: list[tuple[int, int, float]] = field(default_factory=list)
    server_waits: tuple[float, float] | None = None

    @property
    def completed(self) -> bool:
        return self.error is None

    @property
    def asked_at(self) -> float:
        """Returns the due time, or the send time: holding requests back must not make a server look faster."""
        return self.sent if self.due is None else self.due

    @property
    def in_flight(self) -> float:
        return self.end - self.sent

    @property
    def e2e(self) -> float:
        return self.end - self.asked_at

    @property
    def ttft(self) -> float | None:
        return None if self.first is None else self.first - self.asked_at

    @property
    def tpot(self) -> float | None:
        """Returns the seconds per token after the first; None for an answer of one token."""
        if self.first is None or self.output_tokens is None or self.output_tokens < 2:
            return None
        return (self.end - self.first) / (self.output_tokens - 1)


def measure(
    samples: Sequence[Sample],
    *,
    gpus: int | None = None,
    slo: Mapping[str, float | None] | None = None,
    streamed: bool = True,
) -> JsonDict:
    """Returns the numbers of a point from the requests of one run.

    An unstreamed answer (``streamed`` is false) has no times of single tokens. Throughputs are per second of the run
    (first request sent to last answer ended) and, with ``gpus``, also per GPU. Latencies are in milliseconds. An
    unknown number (no completed request, no streaming) is None."""
    done = [sample for sample in samples if sample.completed]
    duration = max(sample.end for sample in done) - min(sample.sent for sample in samples) if done else 0.0
    inputs, outputs, cached = (_total(done, f"{name}_tokens") for name in ("input", "output", "cached"))
    both = None if inputs is None or outputs is None else inputs + outputs
    numbers: JsonDict = {
        "requests": len(samples),
        "completed": len(done),
        "failed": len(samples) - len(done),
        "duration_s": duration if done else None,
        "input_tokens": inputs,
        "output_tokens": outputs,
        "request_throughput": _rate(len(done), duration),
        "input_throughput": _rate(inputs, duration),
        "output_throughput": _rate(outputs, duration),
        "total_throughput": _rate(both, duration),
        "concurrency": _rate(sum(sample.in_flight for sample in done), duration),
        "cache_hit_rate": cached / inputs if cached is not None and inputs else None,
        "ttft_ms": spread(sample.ttft for sample in done),
        "itl_ms": spread(gap for sample in done for gap in sample.gaps),
        "tpot_ms": spread(sample.tpot for sample in done if streamed),
        "e2e_ms": spread(sample.e2e for sample in done),
        "from_sent": None,
    }
    if any(sample.due is not None for sample in samples):
        # An open loop, counted from sending: without the time that a concurrency bound held requests back.
        ttft = spread(None if sample.first is None else sample.first - sample.sent for sample in done)
        numbers["from_sent"] = {"ttft_ms": ttft, "e2e_ms": spread(sample.in_flight for sample in done)}
    median = numbers["tpot_ms"]["p50"]
    numbers["interactivity"] = 1000 / median if median else None
    if gpus:
        for name in ("input_throughput", "output_throughput", "total_throughput"):
            numbers[f"{name}_per_gpu"] = None if numbers[name] is None else numbers[name] / gpus
    return {**numbers, **_goodput(samples, duration, slo or {})}


def spread(seconds: Iterable[float | None]) -> dict[str, float | None]:
    """Returns mean, standard deviation (of all values, as numpy's), minimum, percentiles and maximum in milliseconds;
    all None without values."""
    values = sorted(value * 1000 for value in seconds if value is not None)
    names = ["mean", "std", "min", *(f"p{share}" for share in PERCENTILES), "max"]
    if not values:
        return dict.fromkeys(names)
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    found = [mean, std, values[0], *(percentile(values, share) for share in PERCENTILES), values[-1]]
    return dict(zip(names, found, strict=True))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns the percentile ``share`` of sorted values, interpolated between the two nearest."""
    place = (len(ordered) - 1) * share / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def meets(sample: Sample, slo: Mapping[str, float | None]) -> bool:
    """Returns whether a request completed within every limit. Its inter-token latency is the mean of its gaps."""
    if not sample.completed:
        return False
    mean_gap = math.fsum(sample.gaps) / len(sample.gaps) if sample.gaps else None
    found = {"ttft_ms": sample.ttft, "itl_ms": mean_gap, "e2e_ms": sample.e2e}
    both = ((slo.get(name), seconds) for name, seconds in found.items())
    return all(limit is None or seconds is None or seconds * 1000 <= limit for limit, seconds in both)


def _goodput(samples: Sequence[Sample], duration: float, slo: Mapping[str, float | None]) -> dict[str, object]:
    """Returns the requests per second within the SLO, their share, and whether it suffices; None without an SLO."""
    if not any(slo.get(name) is not None for name in ("ttft_ms", "itl_ms", "e2e_ms")) or not samples:
        return {"goodput": None, "slo_share": None, "slo_met": None}
    good = sum(meets(sample, slo) for sample in samples)
    share = good / len(samples)
    return {"goodput": _rate(good, duration), "slo_share": share, "slo_met": share >= (slo.get("share") or 1.0)}


def _total(samples: Sequence[Sample], name: str) -> int | None:
    counts = [getattr(sample, name) for sample in samples]
    return None if not counts or None in counts else sum(counts)


def _rate(count: float | None, duration: float) -> float | None:
    return None if count is None or duration <= 0 else count / duration


LEAST_TTFT_MS = 10.0
"""A faster server runs no model (as in tests): a wait of a millisecond would change its TTFT by half."""
NO_DELAY_MS = 0.1
"""Every system takes this long to wake a process."""

Moved = Mapping[str, Mapping[str, float]]
"""Maps each latency and statistic to a relative change (0.05 is 5 %)."""


def moved_by_client(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Computes how much the client's own delay may have changed TTFT and ITL, as shares. Omits numbers without a
    value."""
    done = [sample for sample in samples if sample.completed]
    delays = [sample.read_delay + (sample.send_delay if sample.due is not None else 0.0) for sample in done]
    found = {"ttft_ms": _ttft_moved(done, delays)}
    if any(sample.gap_delays for sample in done):
        found["itl_ms"] = _gaps_moved(done, _gaps(done))
    elif any(sample.gaps for sample in done):
        found["itl_ms"] = dict.fromkeys(("mean", "p50", "p90", "p99"), 0.0)
    return found


def moved_by_server_waits(samples: Sequence[Sample]) -> dict[str, dict[str, float]] | None:
    """Computes how much the server's waits for a core may have changed TTFT and ITL; spreads the waits after the first
    token over all gaps of an answer. None without counts, or for a server that answers within ``LEAST_TTFT_MS``."""
    done = [(sample, sample.server_waits) for sample in samples if sample.completed and sample.server_waits]
    own = spread(sample.ttft - waits[0] for sample, waits in done if sample.ttft is not None)["p50"]
    if own is None or own < LEAST_TTFT_MS:
        return None
    gaps = (max(0.0, gap - waits[1] / len(sample.gaps)) for sample, waits in done for gap in sample.gaps)
    known = [sample for sample, _ in done]
    return {"ttft_ms": _ttft_moved(known, [waits[0] for _, waits in done]), "itl_ms": _gaps_moved(known, gaps)}


def most_moved(moved: Moved) -> tuple[str, str, float] | None:
    """Returns the latency, its statistic and its share with the largest change, or None."""
    every = [(name, number, share) for name, shares in moved.items() for number, share in shares.items()]
    return max(every, key=lambda item: item[2], default=None)


def _ttft_moved(samples: Sequence[Sample], delays: Sequence[float]) -> dict[str, float]:
    known = [(sample.ttft, delay) for sample, delay in zip(samples, delays, strict=True) if sample.ttft is not None]
    return _compared(spread(ttft for ttft, _ in known), spread(max(0.0, ttft - delay) for ttft, delay in known))


def _gaps_moved(samples: Sequence[Sample], others: Iterable[float]) -> dict[str, float]:
    return _compared(spread(gap for sample in samples for gap in sample.gaps), spread(others))


def _gaps(samples: Sequence[Sample]) -> Iterator[float]:
    """Yields the gaps without the client's possible delay in them."""
    for sample in samples:
        gaps = list(sample.gaps)
        for place, count, delay in sample.gap_delays:
            gaps[place : place + count] = [max(0.0, gap - delay) for gap in gaps[place : place + count]]
        yield from gaps


def _compared(reported: Mapping[str, float | None], other: Mapping[str, float | None]) -> dict[str, float]:
    pairs = {name: (reported[name], other[name]) for name in ("mean", "p50", "p90", "p99")}
    known = {name: (one, abs(one - two)) for name, (one, two) in pairs.items() if one and two is not None}
    return {name: moved / one if moved > NO_DELAY_MS else 0.0 for name, (one, moved) in known.items()}
