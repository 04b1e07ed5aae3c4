"""The screen of the forecast, and what of a plan it is made of."""

from __future__ import annotations

import pytest

from sglang_hydra.fit.forecast import Demand, Figure
from sglang_hydra.fit.forecast_own import Point
from sglang_hydra.planning.choosing.forecast import demand_of_plan, forecast_of_plan, measured_share
from sglang_hydra.show.forecast import forecast_lines, forecast_record, milliseconds, rate, short_lines
from sglang_hydra.text.screen import Line
from tests.plans import planned

GPT_OSS = ("gpu=h200", "model=gpt_oss", "tp_size=1")


def _text(lines: list[Line]) -> str:
    return "\n".join("".join(part[0] for part in line) for line in lines)


def test_the_screen_has_figures_parts_and_what_helps() -> None:
    shown = _text(forecast_lines(planned(*GPT_OSS, "bench.concurrency=64")))
    for words in (
        "TPOT",
        "TTFT",
        "requests/s",
        "; limit 12.3 ms",
        "reading the routed experts",
        "What would help most",
    ):
        assert words in shown
    assert "wider: no measurement of this family of models" in shown
    assert "TPOT" in _text(short_lines(planned(*GPT_OSS, "bench.concurrency=64")))


LOADS = {
    "concurrency": (("bench.concurrency=64",), Demand(1024, 128, 64, spread=0.0)),
    "drawn_lengths": (("bench.range_ratio=0.5", "bench.concurrency=4"), Demand(768, 96, 4, spread=2 / 3)),
    "prompts": (("bench.num_prompts=80", "bench.concurrency=8"), Demand(1024, 128, 8, spread=0.0, rounds=10)),
    "warm_cache": (("bench.cache=warm", "bench.concurrency=4"), Demand(1024, 128, 4, None, spread=0.0)),
    "accepted": (
        ("forecast.accept_length=2.5", "bench.concurrency=4"),
        Demand(1024, 128, 4, spread=0.0, accepted=2.5),
    ),
}


@pytest.mark.parametrize(("typed", "demand"), LOADS.values(), ids=LOADS)
def test_the_load_is_that_of_the_bench_node(typed: tuple[str, ...], demand: Demand) -> None:
    assert demand_of_plan(planned(*GPT_OSS, *typed)) == demand


def test_requests_that_arrive_by_chance_are_answered_as_fast_as_they_come() -> None:
    calm = forecast_of_plan(planned(*GPT_OSS, "bench.request_rate=4"))
    flood = forecast_of_plan(planned(*GPT_OSS, "bench.request_rate=4000"))
    assert calm.found is not None
    assert calm.found.requests.value == pytest.approx(4, rel=0.03)
    assert not calm.too_much
    assert flood.too_much
    assert "more arrive" in _text(short_lines(planned(*GPT_OSS, "bench.request_rate=4000")))


def test_a_missing_fact_is_named() -> None:
    plan = planned("gpu=ascend_910b", "model=qwen3_8b")
    assert forecast_record(plan)["forecast"] is None
    assert "gpu.memory_bandwidth_gbps=NUMBER" in _text(forecast_lines(plan))
    assert "gpu.memory_bandwidth_gbps=NUMBER" in _text(short_lines(plan))
    typed = planned("gpu=ascend_910b", "model=qwen3_8b", "gpu.memory_bandwidth_gbps=1600")
    assert forecast_record(typed)["forecast"]["tpot"]["value"] > 0


def test_measurements_that_correct_nothing_are_not_passed_over() -> None:
    plan = planned(*GPT_OSS, "bench.concurrency=64", "forecast.results=[multirun/none]")
    known = forecast_of_plan(plan)
    assert known.server is not None
    assert known.demand is not None
    point = Point(known.server, known.demand, 0.01, None)
    for lines in (forecast_lines, short_lines):
        assert "no valid point" in _text(lines(plan, []))
        assert "no valid point" not in _text(lines(plan, [point]))


def test_the_plan_holds_its_forecast() -> None:
    record = planned(*GPT_OSS, "bench.concurrency=64").to_json()["forecast"]
    assert record["tpot"]["low"] < record["tpot"]["value"] < record["tpot"]["high"]
    assert record["reasons"] == ["no measurement of this family of models"]


def test_figures_have_the_digits_that_are_worth_reading() -> None:
    assert milliseconds(Figure(0.01923, 0.0141, 0.0253)) == "19.2 ms (14 to 25)"
    assert rate(Figure(2412.4, 1911, 3108)) == "2,410 (1,900 to 3,100)"


def test_a_server_without_a_gpu_has_its_share_of_the_limit() -> None:
    record = planned("gpu=cpu", "model=tiny", "gpu.memory_bandwidth_gbps=20").to_json()
    measures = {"completed": 4, "concurrency": 2.0, "input_tokens": 1024, "output_tokens": 256, "cache_hit_rate": 0.0}
    measures |= {"output_throughput": 100.0, "output_throughput_per_gpu": None}
    found = measured_share(record, {}, measures)
    assert found["limit_share"] == pytest.approx(100 * 100 / found["limit_per_gpu"])
