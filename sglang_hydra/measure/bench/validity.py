"""Judges whether a measurement counts. An invalid point has a named reason; slowness is none.

Each rule is one small function: it compares the request with the observation, and returns the problem or None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from sglang_hydra.measure.bench.load import Load
from sglang_hydra.measure.bench.measures import Moved, Sample, most_moved
from sglang_hydra.text.json_types import JsonObject

COLD_HIT_RATE = 0.01
"""The largest share of prompt tokens that a cold point with random prompts may find in the prefix cache."""

OWN_DELAY = 0.05
"""The largest share by which the client's own delay, or the server's waits, may have changed a reported number."""

SHORTFALL = 0.9
"""The smallest share of the requested concurrency or request rate that must be reached."""


@dataclass(frozen=True)
class Seen:
    """The observations while a point ran.

    ``hit_rate`` is a share of prompt tokens. ``retracted`` counts requests that the server removed from its batch.
    ``throttled`` are the GPUs' reasons for lowered clocks. ``moved`` is the possible effect of the client's own delay
    on each number, ``server_moved`` that of the server's waits for a core. None: not observed."""

    load: Load
    samples: Sequence[Sample] = field(repr=False)
    hit_rate: float | None = None
    retracted: int | None = None
    throttled: Sequence[str] = ()
    quality: JsonObject | None = None
    moved: Moved | None = None
    server_moved: Moved | None = None


def invalid_reasons(seen: Seen) -> list[str]:
    """Returns every reason why the point does not count, in words; none for a valid one."""
    return [reason for rule in RULES if (reason := rule(seen)) is not None]


def requests_failed(seen: Seen) -> str | None:
    failed = [sample for sample in seen.samples if not sample.completed]
    if not seen.samples:
        return "no request was sent"
    if not failed:
        return None
    return f"{len(failed)} of {len(seen.samples)} requests failed, first: {failed[0].error}"


def other_lengths(seen: Seen) -> str | None:
    done = [sample for sample in seen.samples if sample.completed]
    known = [sample for sample in done if sample.output_tokens is not None]
    wrong = [sample for sample in known if sample.output_tokens != sample.asked_tokens]
    if done and not known:
        return "the server does not say how many tokens it wrote"
    if not wrong:
        return None
    first = f"first: {wrong[0].output_tokens} tokens for {wrong[0].asked_tokens}"
    return f"{len(wrong)} of {len(known)} answers have another length than requested, {first}"


def missing_tokens(seen: Seen) -> str | None:
    """Compares the server's token count with the received ids or bytes of text, over all answers: a single token may
    leave no text, such as a partial character at the end of one."""
    counted = [sample for sample in seen.samples if sample.completed and sample.arrived_tokens is not None]
    arrived = sum(sample.arrived_tokens or 0 for sample in counted)
    claimed = sum(sample.output_tokens or 0 for sample in counted)
    return f"at most {arrived} of the {claimed} tokens arrived that the server reports" if arrived < claimed else None


def low_concurrency(seen: Seen) -> str | None:
    """Compares the concurrency while another request was always ready: the ramps at both ends do not count."""
    asked = seen.load.concurrency
    if asked is None or seen.load.request_rate is not None or not seen.samples:
        return None
    asked = min(asked, len(seen.samples))
    reached = _mean_in_flight(seen.samples, asked)
    if reached >= SHORTFALL * asked:
        return None
    return f"{reached:.1f} requests were in flight on average; {asked} were requested"


def late_client(seen: Seen) -> str | None:
    """Returns why the client is too late: an open loop must send on time, whatever the server does."""
    sent = [sample for sample in seen.samples if sample.due is not None]
    if seen.load.request_rate is None or len(sent) < 2:
        return None
    due, times = [sample.due for sample in sent if sample.due is not None], [sample.sent for sample in sent]
    planned, taken = max(due) - min(due), max(times) - min(times)
    if planned <= 0 or taken * SHORTFALL <= planned:
        return None
    reached = seen.load.request_rate * planned / taken
    held = " (bench.concurrency holds requests back)" if seen.load.concurrency else ""
    return f"{reached:.2f} requests a second were sent; {seen.load.request_rate:g} were requested{held}"


def retracted(seen: Seen) -> str | None:
    count = max(seen.retracted or 0, sum(sample.retractions or 0 for sample in seen.samples))
    if not count:
        return None
    return f"the server removed {count} requests from its batch for lack of KV cache, and began them again"


def delayed_by_client(seen: Seen) -> str | None:
    return _moved_too_far(seen.moved, "the client's own delay")


def server_without_a_core(seen: Seen) -> str | None:
    """Returns why the server lacked a core: on a small machine the client or another program used it."""
    return _moved_too_far(seen.server_moved, "the server waited for a core of this machine, which")


def _moved_too_far(moved: Moved | None, cause: str) -> str | None:
    most = most_moved(moved or {})
    if most is None or most[2] <= OWN_DELAY:
        return None
    measure, number, share = most
    words = {"ttft_ms": "TTFT", "itl_ms": "ITL"}[measure]
    return f"{cause} may have moved the {number} of {words} by {share:.1%} (limit {OWN_DELAY:.0%})"


def warm_cache(seen: Seen) -> str | None:
    is_cold = seen.load.cache == "cold" and seen.load.dataset == "random" and not seen.load.trace
    if not is_cold or (seen.hit_rate or 0.0) <= COLD_HIT_RATE:
        return None
    return f"{seen.hit_rate:.1%} of the prompt tokens came from the prefix cache, in a cold point"


def throttled_clocks(seen: Seen) -> str | None:
    return f"the GPUs lowered their clocks: {', '.join(seen.throttled)}" if seen.throttled else None


def wrong_answers(seen: Seen) -> str | None:
    found = seen.quality
    if found is None or found["passed"]:
        return None
    return f"{found['right']} of {found['asked']} fixed questions were answered right: {found['why']}"


RULES: tuple[Callable[[Seen], str | None], ...] = (
    requests_failed,
    other_lengths,
    missing_tokens,
    low_concurrency,
    late_client,
    retracted,
    delayed_by_client,
    server_without_a_core,
    warm_cache,
    throttled_clocks,
    wrong_answers,
)


def _mean_in_flight(samples: Sequence[Sample], asked: int) -> float:
    """Returns the mean number of requests in flight between sending request number ``asked`` and the last one.

    If all were sent at once, returns the maximum instead."""
    sent = sorted(sample.sent for sample in samples)
    begin, end = sent[asked - 1], sent[-1]
    if end > begin:
        inside = sum(max(0.0, min(sample.end, end) - max(sample.sent, begin)) for sample in samples)
        return inside / (end - begin)
    steps = sorted([(sample.sent, 1) for sample in samples] + [(sample.end, -1) for sample in samples])
    return float(max(accumulate(step for _, step in steps)))
