"""Each reason for which a point does not count: the cases on both sides of its limit."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_hydra.measure.bench.measures import Sample
from sglang_hydra.measure.bench.validity import RULES, Seen, invalid_reasons
from tests.measure.bench.conftest import load


def samples(count: int = 40, slots: int = 4, each: float = 0.1, idle: float = 0.0, **settings: Any) -> list[Sample]:
    """``slots`` at a time, one after the other, with ``idle`` seconds between a slot's requests."""
    made = []
    for number in range(count):
        sent = (number // slots) * (each + idle)
        one = Sample(8, sent, None, sent + each / 2, sent + each, [each / 14] * 7, 64, 8, 0)
        for name, value in settings.items():
            setattr(one, name, value)
        made.append(one)
    return made


def arrivals(rate: float, count: int, late: float = 1.0) -> list[Sample]:
    """Due at ``rate`` requests a second, sent ``late`` times as slowly."""
    made = [Sample(8, n / rate * late, n / rate, n / rate * late + 0.05, n / rate * late + 0.1) for n in range(count)]
    for one in made:
        one.output_tokens = 8
    return made


OPEN = {"request_rate": 10.0, "concurrency": None}

CASES: list[tuple[str, Seen, str | None]] = [
    ("a good point", Seen(load(), samples(), hit_rate=0.0, retracted=0), None),
    ("nothing is known", Seen(load(), samples()), None),
    ("nothing was sent", Seen(load(), []), "no request was sent"),
    ("one failed", Seen(load(), [*samples(), Sample(8, 0.0, error="HTTP 500")]), "1 of 41 requests failed"),
    ("too short", Seen(load(), samples(output_tokens=7)), "40 of 40 answers have another length"),
    ("too long", Seen(load(), samples(output_tokens=9)), "first: 9 tokens for 8"),
    ("no count", Seen(load(), samples(output_tokens=None)), "does not say how many tokens"),
    ("idle slots, a little", Seen(load(), samples(idle=0.005)), None),
    ("idle slots", Seen(load(), samples(idle=0.03)), "in flight on average; 4 were requested"),
    ("fewer slots", Seen(load(concurrency=8), samples(slots=4)), "in flight on average; 8 were requested"),
    ("fewer requests than slots", Seen(load(concurrency=64, num_prompts=4), samples(4, 4)), None),
    ("on time", Seen(load(**OPEN), arrivals(10, 40)), None),
    ("a little late", Seen(load(**OPEN), arrivals(10, 40, 1.1)), None),
    ("late", Seen(load(**OPEN), arrivals(10, 40, 1.3)), "7.69 requests a second were sent; 10 were requested"),
    ("held back", Seen(load(request_rate=10.0, concurrency=1), arrivals(10, 40, 2)), "bench.concurrency holds"),
    ("one arrival", Seen(load(**OPEN), arrivals(10, 1)), None),
    ("retracted", Seen(load(), samples(), retracted=3), "removed 3 requests from its batch"),
    ("each says it was retracted", Seen(load(), samples(retractions=1)), "removed 40 requests"),
    ("never late", Seen(load(), samples(), moved={"ttft_ms": {"p99": 0.0}}), None),
    ("a little moved", Seen(load(), samples(), moved={"ttft_ms": {"p99": 0.05}}), None),
    (
        "moved",
        Seen(load(), samples(), moved={"ttft_ms": {"mean": 0.02, "p99": 0.0731}, "itl_ms": {"p50": 0.0}}),
        "the client's own delay may have moved the p99 of TTFT by 7.3% (limit 5%)",
    ),
    ("no waits known", Seen(load(), samples(), server_moved=None), None),
    (
        "waited for",
        Seen(load(), samples(), server_moved={"ttft_ms": {"mean": 0.08, "p99": 0.02}, "itl_ms": {"p50": 0.05}}),
        "the server waited for a core of this machine, which may have moved the mean of TTFT by 8.0% (limit 5%)",
    ),
    ("text for every token", Seen(load(), samples(arrived_tokens=30)), None),
    (
        "a token that left nothing",
        Seen(load(), [*samples(arrived_tokens=9), *samples(arrived_tokens=7)]),
        None,
    ),
    (
        "tokens that never came",
        Seen(load(), samples(arrived_tokens=4)),
        "at most 160 of the 320 tokens arrived that the server reports",
    ),
    ("one percent", Seen(load(), samples(), hit_rate=0.01), None),
    ("warm", Seen(load(), samples(), hit_rate=0.011), "1.1% of the prompt tokens came from the prefix cache"),
    ("warm as asked", Seen(load(cache="warm"), samples(), hit_rate=0.9), None),
    ("a shared prefix", Seen(load(dataset="shared_prefix", prefix_len=9), samples(), hit_rate=0.9), None),
    ("throttled", Seen(load(), samples(), throttled=("hardware thermal slowdown",)), "hardware thermal slowdown"),
    (
        "wrong",
        Seen(load(), samples(), quality={"passed": False, "right": 1, "asked": 13, "why": "banana"}),
        "1 of 13 fixed questions were answered right: banana",
    ),
    ("right", Seen(load(), samples(), quality={"passed": True, "right": 13, "asked": 13, "why": ""}), None),
]


@pytest.mark.parametrize(("seen", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_point_counts_or_says_why_not(seen: Seen, reason: str | None) -> None:
    found = invalid_reasons(seen)
    if reason is None:
        assert found == []
    else:
        assert [said for said in found if reason in said], found


def test_every_rule_has_a_case_that_it_refuses() -> None:
    refused = {rule for _, seen, reason in CASES if reason for rule in RULES if rule(seen)}
    assert refused == set(RULES)


def test_every_reason_is_told_at_once() -> None:
    seen = Seen(load(), samples(output_tokens=7), retracted=1, hit_rate=0.5, throttled=("x",))
    assert len(invalid_reasons(seen)) == 4
