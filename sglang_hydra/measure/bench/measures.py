"""From single requests to the numbers of a point. Pure: times in seconds go in, milliseconds come out.

The definitions are those of SGLang's bench_serving (0.5.2, ``calculate_metrics``): TTFT from sending to the first
content (in an open loop from when sending was due, which is ours); ITL between contents, a chunk of n tokens counting
as n equal gaps; TPOT the time after the first token over the output tokens after the first; percentiles interpolate
between neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field

from sglang_hydra.text.json_types import JsonDict

PERCENTILES = (50, 90, 95, 99)


@dataclass
class Sample:
    """One request as the client saw it. Times in seconds on one clock; ``sent`` is when it went out.

    ``gaps`` are the times between successive tokens; ``due`` is when an open-loop client meant to send it: latencies
    count from there. A request that failed has an ``error`` and counts nowhere else. Token counts are the server's,
    None where it says none; ``cached_tokens`` of the prompt came from a prefix cache; ``retractions`` is how often it
    was thrown out of the batch and begun again; of the tokens that the server counts, ``arrived_tokens`` at most came.

    What the client itself may have added: it sent ``send_delay`` after it could, the first content may have been there
    ``read_delay`` earlier, and (place, count, seconds) of ``gap_delays`` may be the client's in that number of gaps.
    ``server_waits`` are the seconds that a process of the server waited for a core, until the first token and after it;
    None where nobody counts them.
    """

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
        """Returns when a user would have asked: an open loop that holds a request back makes no server faster."""
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
        """Returns the seconds a token after the first; None for an answer of one token."""
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
    """Returns the numbers of a point from its requests, all sent within one run.

    An answer that comes whole (``streamed`` is false) has no time of a single token.

    Throughputs are per second of the run (first request sent to last answer ended) and, with ``gpus``, per GPU too.
    Latencies in milliseconds; what is not known (no request completed, no streaming) is None.
    """
    done = [sample for sample in samples if sample.completed]
    duration = max(sample.end for sample in done) - min(sample.sent for sample in samples) if done else 0.0
    inputs, outputs = _total(done, "input_tokens"), _total(done, "output_tokens")
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
        "cache_hit_rate": _hit_rate(done),
        "ttft_ms": spread(sample.ttft for sample in done),
        "itl_ms": spread(gap for sample in done for gap in sample.gaps),
        "tpot_ms": spread(sample.tpot for sample in done if streamed),
        "e2e_ms": spread(sample.e2e for sample in done),
        "from_sent": _from_sent(done) if any(sample.due is not None for sample in samples) else None,
    }
    median = numbers["tpot_ms"]["p50"]
    numbers["interactivity"] = 1000 / median if median else None
    if gpus:
        for name in ("input_throughput", "output_throughput", "total_throughput"):
            numbers[f"{name}_per_gpu"] = None if numbers[name] is None else numbers[name] / gpus
    return {**numbers, **_goodput(samples, duration, slo or {})}


def _from_sent(samples: Sequence[Sample]) -> dict[str, dict[str, float | None]]:
    """Returns what an open loop's latencies would be if they counted from sending: without the time that a bound on
    what is in flight held requests back."""
    return {
        "ttft_ms": spread(None if sample.first is None else sample.first - sample.sent for sample in samples),
        "e2e_ms": spread(sample.in_flight for sample in samples),
    }


def spread(seconds: Iterable[float | None]) -> dict[str, float | None]:
    """Returns mean, standard deviation (of all values, as numpy's), smallest, percentiles and largest, in milliseconds;
    all None for no value."""
    values = sorted(value * 1000 for value in seconds if value is not None)
    names = ["mean", "std", "min", *(f"p{share}" for share in PERCENTILES), "max"]
    if not values:
        return dict.fromkeys(names)
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    found = [mean, std, values[0], *(percentile(values, share) for share in PERCENTILES), values[-1]]
    return dict(zip(names, found, strict=True))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns the value below which ``share`` percent of the sorted values lie, between the two nearest."""
    place = (len(ordered) - 1) * share / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def meets(sample: Sample, slo: Mapping[str, float | None]) -> bool:
    """Returns whether a request completed within every limit. The inter-token latency of a request is its mean one."""
    if not sample.completed:
        return False
    mean_gap = math.fsum(sample.gaps) / len(sample.gaps) if sample.gaps else None
    found = {"ttft_ms": sample.ttft, "itl_ms": mean_gap, "e2e_ms": sample.e2e}
    return all(
        (limit := slo.get(name)) is None or seconds is None or seconds * 1000 <= limit
        for name, seconds in found.items()
    )


def _goodput(samples: Sequence[Sample], duration: float, slo: Mapping[str, float | None]) -> dict[str, object]:
    """Returns requests a second within the SLO, the share of them, and whether that is enough; None without an SLO."""
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


def _hit_rate(samples: Sequence[Sample]) -> float | None:
    cached, prompts = _total(samples, "cached_tokens"), _total(samples, "input_tokens")
    return cached / prompts if cached is not None and prompts else None


LEAST_TTFT_MS = 10.0
"""What answers sooner runs no model, as a server of a test: a wait of a millisecond would move it by half."""
NO_DELAY_MS = 0.1
"""Less is what any system takes to wake a process."""

Moved = Mapping[str, Mapping[str, float]]
"""Shares (0.05 is 5 %) for each number of a measure."""


def moved_by_client(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Computes by how much the client's own delay may have changed TTFT and ITL. Numbers without a value are left
    out."""
    done = [sample for sample in samples if sample.completed]
    delays = [sample.read_delay + (sample.send_delay if sample.due is not None else 0.0) for sample in done]
    found = {"ttft_ms": _ttft_moved(done, delays)}
    if any(sample.gap_delays for sample in done):
        found["itl_ms"] = _gaps_moved(done, _gaps(done))
    elif any(sample.gaps for sample in done):
        found["itl_ms"] = dict.fromkeys(("mean", "p50", "p90", "p99"), 0.0)
    return found


def moved_by_server_waits(samples: Sequence[Sample]) -> dict[str, dict[str, float]] | None:
    """Computes by how much the server's waits for a core may have changed TTFT and ITL; those after the first token
    are shared out over all gaps of an answer. None where they are not known, or where the server itself answers within
    ``LEAST_TTFT_MS``."""
    done = [(sample, sample.server_waits) for sample in samples if sample.completed and sample.server_waits]
    own = spread(sample.ttft - waits[0] for sample, waits in done if sample.ttft is not None)["p50"]
    if own is None or own < LEAST_TTFT_MS:
        return None
    gaps = (max(0.0, gap - waits[1] / len(sample.gaps)) for sample, waits in done for gap in sample.gaps)
    known = [sample for sample, _ in done]
    return {"ttft_ms": _ttft_moved(known, [waits[0] for _, waits in done]), "itl_ms": _gaps_moved(known, gaps)}


def most_moved(moved: Moved) -> tuple[str, str, float] | None:
    """Returns the measure, its number and the share of what may be moved most."""
    every = [(name, number, share) for name, shares in moved.items() for number, share in shares.items()]
    return max(every, key=lambda item: item[2], default=None)


def _ttft_moved(samples: Sequence[Sample], delays: Sequence[float]) -> dict[str, float]:
    known = [(sample.ttft, delay) for sample, delay in zip(samples, delays, strict=True) if sample.ttft is not None]
    return _compared(spread(ttft for ttft, _ in known), spread(max(0.0, ttft - delay) for ttft, delay in known))


def _gaps_moved(samples: Sequence[Sample], others: Iterable[float]) -> dict[str, float]:
    return _compared(spread(gap for sample in samples for gap in sample.gaps), spread(others))


def _gaps(samples: Sequence[Sample]) -> Iterator[float]:
    """Yields the gaps without what may be the client's in them."""
    for sample in samples:
        gaps = list(sample.gaps)
        for place, count, delay in sample.gap_delays:
            gaps[place : place + count] = [max(0.0, gap - delay) for gap in gaps[place : place + count]]
        yield from gaps


def _compared(reported: Mapping[str, float | None], other: Mapping[str, float | None]) -> dict[str, float]:
    pairs = {name: (reported[name], other[name]) for name in ("mean", "p50", "p90", "p99")}
    known = {name: (one, abs(one - two)) for name, (one, two) in pairs.items() if one and two is not None}
    return {name: moved / one if moved > NO_DELAY_MS else 0.0 for name, (one, moved) in known.items()}
