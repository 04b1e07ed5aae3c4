"""What a user's own points make of the forecast: published sets as if they were the user's."""

from __future__ import annotations

import statistics
from math import log
from typing import Any

import pytest

from sglang_hydra.fit.forecast import Demand, forecast
from sglang_hydra.fit.forecast_own import Point, own_of
from tests.fit.test_forecast import AS_PUBLISHED, R1, rows, server

SETS = {
    "qwen3_32b": ["gpu=h100", "model=qwen3_32b", "tp_size=4"],
    "qwen3_32b_two": ["gpu=h100", "model=qwen3_32b", "tp_size=2"],
    "glm_5": ["gpu=b200", "model=glm_5_fp8", "tp_size=8", *AS_PUBLISHED],
    "r1": [*R1, *AS_PUBLISHED],
}


def points(words: list[str], factor: float = 1.0) -> list[Point]:
    def demand(row: dict[str, Any]) -> Demand:
        return Demand(row["input_len"], row["output_len"], row["concurrency"], spread=row["spread"])

    return [
        Point(server(*words), demand(row), factor * row["tpot_ms"] / 1e3, row["ttft_ms"] / 1e3)
        for row in rows()
        if row["words"] == words and row["engine"] == "sglang"
    ]


def off(point: Point, taken: list[Point]) -> float:
    own = own_of(taken, point.server)
    assert point.tpot
    return abs(log(forecast(point.server, point.demand, own=own).tpot.value / point.tpot))


@pytest.mark.parametrize("words", SETS.values(), ids=SETS)
def test_five_points_bring_other_loads_of_the_layout_within_ten_percent(words: list[str]) -> None:
    measured = points(words, factor=1.4)  # a machine that is slower than any that was published
    taken = measured[:: max(1, len(measured) // 5)][:5]
    rest = [point for point in measured if point not in taken]
    assert statistics.median(off(point, taken) for point in rest) < 0.10
    assert statistics.median(off(point, []) for point in rest) > 0.15


def test_another_layout_of_the_model_is_within_twenty_percent() -> None:
    measured, other = points(SETS["qwen3_32b"], 1.4), points(SETS["qwen3_32b_two"], 1.4)
    assert statistics.median(off(point, measured[::6][:5]) for point in other) < 0.20
    near, far = (own_of(measured[:5], point.server) for point in (measured[0], other[0]))
    assert near is not None
    assert far is not None
    assert near.tpot_error is not None
    assert far.tpot_error is not None
    assert near.tpot_error < far.tpot_error


def test_a_gpu_that_the_user_measured_is_no_longer_unknown() -> None:
    """Its interval holds what was not taken, and a load that only the user measured is not far from all."""
    unseen = server("gpu=cpu", "model=tiny", "gpu.memory_bandwidth_gbps=20")
    loads = [Demand(16, 8, number) for number in range(1, 9)]
    measured = [Point(unseen, load, 6 * forecast(unseen, load).tpot.value, None) for load in loads]
    shipped, own = (forecast(unseen, loads[3], own=own_of(taken, unseen)) for taken in ([], measured[::2]))
    assert len(shipped.reasons) >= 4
    assert own.reasons == ()
    assert own.tpot.low < (measured[3].tpot or 0) < own.tpot.high < 1.3 * own.tpot.value
    far = forecast(unseen, Demand(100_000, 8, 1), own=own_of(measured, unseen))
    assert [reason.split()[0] for reason in far.reasons] == ["input_len"]


def test_points_of_another_model_say_nothing() -> None:
    assert own_of(points(SETS["glm_5"]), server(*R1)) is None
    assert own_of([], server(*R1)) is None
