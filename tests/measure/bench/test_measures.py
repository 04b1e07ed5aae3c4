"""Numbers from requests whose times are written down: against a calculation by hand and the standard library."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_hydra.measure.bench.measures import Sample, measure, meets, percentile, spread


def sample(sent: float, ttft: float, gaps: list[float], **settings: Any) -> Sample:
    """A request of 10 tokens for one more than it has gaps."""
    first = sent + ttft
    tokens = len(gaps) + 1
    made = Sample(tokens, sent, None, first, first + sum(gaps), gaps, 10, tokens, 0)
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def test_two_requests_by_hand() -> None:
    found = measure([sample(1.0, 0.1, [0.02, 0.04]), sample(1.5, 0.3, [0.1, 0.1])], gpus=2)
    assert found["duration_s"] == pytest.approx(1.0)  # 1.0 to 2.0
    assert (found["requests"], found["completed"], found["failed"]) == (2, 2, 0)
    assert (found["input_tokens"], found["output_tokens"]) == (20, 6)
    expected = {
        "request_throughput": 2.0,
        "input_throughput": 20.0,
        "output_throughput": 6.0,
        "total_throughput": 26.0,
        "input_throughput_per_gpu": 10.0,
        "output_throughput_per_gpu": 3.0,
        "total_throughput_per_gpu": 13.0,
        "concurrency": 0.16 + 0.5,
        "interactivity": 1000 / 65,  # half way between 30 and 100 ms a token
        "cache_hit_rate": 0.0,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["ttft_ms"]["p50"] == pytest.approx(200)
    gaps = {"mean": 65, "std": 1275**0.5, "min": 20, "p50": 70, "p90": 100, "p95": 100, "p99": 100, "max": 100}
    assert found["itl_ms"] == pytest.approx(gaps)
    assert found["tpot_ms"]["p50"] == pytest.approx(65)
    assert found["e2e_ms"]["p50"] == pytest.approx(330)
    assert found["e2e_ms"]["p90"] == pytest.approx(160 + 0.9 * 340)


@pytest.mark.parametrize(
    ("samples", "completed", "unknown"),
    [
        ([], 0, ("output_throughput", "duration_s", "interactivity", "cache_hit_rate", "goodput")),
        ([Sample(4, 0.0, error="HTTP 500")], 0, ("output_throughput", "duration_s", "output_tokens")),
        ([sample(0, 0.1, [])], 1, ("interactivity", "goodput")),
        ([sample(0, 0.1, [0.1], output_tokens=None)], 1, ("output_tokens", "output_throughput", "interactivity")),
        ([sample(0, 0.1, [0.1], cached_tokens=None)], 1, ("cache_hit_rate",)),
    ],
)
def test_what_cannot_be_said_is_none(samples: list[Sample], completed: int, unknown: tuple[str, ...]) -> None:
    found = measure(samples)
    assert found["completed"] == completed
    assert [found[name] for name in unknown] == [None] * len(unknown)


def test_requests_that_fail_count_nowhere_but_as_failed() -> None:
    good = sample(0, 0.1, [0.1] * 9)
    alone = measure([good])
    both = measure([good, Sample(10, 0.0, end=50.0, error="HTTP 500")])
    assert both["failed"] == 1
    assert {**both, "requests": 1, "failed": 0} == alone


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=60))
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    ordered = sorted(values)
    expected = statistics.quantiles(ordered, n=100, method="inclusive")
    for share in (50, 90, 99):
        assert percentile(ordered, share) == pytest.approx(expected[share - 1], abs=1e-6)
    assert percentile(ordered, 0) == ordered[0]
    assert percentile(ordered, 100) == ordered[-1]


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=40))
def test_a_spread_is_in_order(seconds: list[float]) -> None:
    found = spread(seconds)
    assert found["p50"] <= found["p90"] <= found["p99"] <= found["max"]  # type: ignore[operator]
    assert found["mean"] == pytest.approx(statistics.fmean(seconds) * 1000)


def test_nothing_has_no_spread() -> None:
    assert spread([None]) == dict.fromkeys(("mean", "std", "min", "p50", "p90", "p95", "p99", "max"))


@pytest.mark.parametrize(
    ("slo", "met"),
    [
        ({}, True),
        ({"ttft_ms": 100.0}, True),
        ({"ttft_ms": 99.0}, False),
        ({"itl_ms": 30.1}, True),
        ({"itl_ms": 29.0}, False),
        ({"e2e_ms": 161.0}, True),
        ({"e2e_ms": 159.0}, False),
        ({"ttft_ms": 200.0, "itl_ms": 29.0, "e2e_ms": 500.0}, False),
    ],
)
def test_a_request_meets_every_limit_or_none(slo: dict[str, float | None], met: bool) -> None:
    assert meets(sample(0, 0.1, [0.02, 0.04]), slo) is met


def test_a_request_that_failed_meets_nothing() -> None:
    assert not meets(Sample(4, 0.0, error="HTTP 500"), {})


@pytest.mark.parametrize(("share", "met"), [(0.5, True), (0.6, False)])
def test_goodput_counts_what_meets_the_slo(share: float, met: bool) -> None:
    fast, slow = sample(0, 0.1, [0.1] * 9), sample(0, 0.9, [0.1])
    found = measure([fast, slow], slo={"ttft_ms": 500.0, "itl_ms": None, "e2e_ms": None, "share": share})
    assert found["goodput"] == pytest.approx(1.0)
    assert (found["slo_share"], found["slo_met"]) == (0.5, met)
