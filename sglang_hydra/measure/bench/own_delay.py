"""By how much the client itself may have moved the numbers of a point.

The reported numbers are compared with those of a client without any delay: one that sends the moment it can, and whose
bytes were there as early as they can have been.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sglang_hydra.measure.bench.measures import Sample, spread

NO_DELAY_MS = 0.1
"""Less is what any system takes to wake a process."""

Moved = Mapping[str, Mapping[str, float]]
"""Shares (0.05 is 5 %) for each number of a measure."""


def moved_by_client(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """How far TTFT and ITL may be off for the client's own delay. What has no value is left out."""
    done = [sample for sample in samples if sample.completed]
    with_first = [sample for sample in done if sample.ttft is not None]
    found = {"ttft_ms": _compared(spread(_ttft(with_first, False)), spread(_ttft(with_first, True)))}
    if any(sample.gap_delays for sample in done):
        found["itl_ms"] = _compared(spread(gap for sample in done for gap in sample.gaps), spread(_gaps(done)))
    elif any(sample.gaps for sample in done):
        found["itl_ms"] = dict.fromkeys(("mean", "p50", "p90", "p99"), 0.0)
    return found


def most_moved(moved: Moved) -> tuple[str, str, float] | None:
    """The measure, its number and the share of what may be moved most."""
    every = [(name, number, share) for name, shares in moved.items() for number, share in shares.items()]
    return max(every, key=lambda item: item[2], default=None)


def _ttft(samples: Sequence[Sample], without_delay: bool) -> Iterator[float]:
    for sample in samples:
        own = sample.read_delay + (sample.send_delay if sample.due is not None else 0.0)
        yield max(0.0, (sample.ttft or 0.0) - (own if without_delay else 0.0))


def _gaps(samples: Sequence[Sample]) -> Iterator[float]:
    """The gaps without what may be the client's in them."""
    for sample in samples:
        gaps = list(sample.gaps)
        for place, count, delay in sample.gap_delays:
            gaps[place : place + count] = [max(0.0, gap - delay) for gap in gaps[place : place + count]]
        yield from gaps


def _compared(reported: Mapping[str, float | None], other: Mapping[str, float | None]) -> dict[str, float]:
    pairs = {name: (reported[name], other[name]) for name in ("mean", "p50", "p90", "p99")}
    known = {name: (one, abs(one - two)) for name, (one, two) in pairs.items() if one and two is not None}
    return {name: moved / one if moved > NO_DELAY_MS else 0.0 for name, (one, moved) in known.items()}
