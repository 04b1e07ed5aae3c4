"""Points on a fake server: what is measured there is known, and what must not count does not."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import httpx
import pytest

from sglang_hydra.measure.bench import validity
from sglang_hydra.measure.bench.client import Builtin
from sglang_hydra.measure.bench.point import PointResult, run_point
from sglang_hydra.measure.bench.server import Endpoint, empty_cache
from sglang_hydra.text.errors import ServerError
from tests.measure.bench.conftest import Start, load


def taken(server: Endpoint, point_id: str = "one", repeat: int = 1, **settings: Any) -> PointResult:
    asked = load(**settings)
    return run_point(server, Builtin(server), asked, point_id=point_id, repeat=repeat)


def test_a_point_is_measured_and_valid(start: Start) -> None:
    result = taken(start(decode_ms=5))
    assert (result.state, result.reasons) == ("valid", ())
    measures = result.measures
    assert (measures["requests"], measures["completed"], measures["failed"]) == (40, 40, 0)
    assert (measures["input_tokens"], measures["output_tokens"]) == (40 * 64, 40 * 8)
    # 5 ms a token are slept; a busy machine only makes them longer.
    assert measures["itl_ms"]["p50"] >= 4.9
    assert measures["tpot_ms"]["p50"] >= 4.9
    assert measures["e2e_ms"]["p50"] >= measures["ttft_ms"]["p50"] + 7 * 4.9
    assert measures["cache_hit_rate"] == 0
    assert result.client["name"] == "builtin"
    json.dumps(result.to_json(), allow_nan=False)


def test_answers_that_come_whole_have_no_inter_token_latency(start: Start) -> None:
    result = taken(start(), stream=False)
    assert result.state == "valid"
    assert result.measures["itl_ms"]["p50"] is None
    assert result.measures["tpot_ms"]["p50"] is None
    assert result.measures["interactivity"] is None
    assert result.measures["ttft_ms"]["p50"] == pytest.approx(result.measures["e2e_ms"]["p50"], rel=0.2)


def test_the_server_counts_what_was_sent(start: Start) -> None:
    result = taken(start(), warmup=0)
    assert result.server is not None
    assert result.server["counted"]["prompt_tokens_total"] == 40 * 64
    assert result.server["cache_hit_rate"] == 0


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("fault", "settings", "reason"),
    [
        ({"short": True}, {}, "answers have another length than requested, first: 7 tokens for 8"),
        ({"claims": 2}, {}, "at most 160 of the 320 tokens arrived"),
        ({"claims": 2}, {"stream": False}, "at most 160 of the 320 tokens arrived"),
        ({"fail_every": 7}, {}, "requests failed, first: HTTP 500"),
        ({"retract": 3}, {}, "removed 3 requests from its batch"),
        ({"broken": True}, {"quality": True}, "fixed questions were answered right"),
    ],
)
def test_what_is_wrong_makes_a_point_invalid(
    start: Start, fault: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    result = taken(start(**fault), **settings)
    assert result.state == "invalid"
    assert [said for said in result.reasons if reason in said]


def test_a_rate_that_is_not_reached_makes_a_point_invalid(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validity, "SHORTFALL", 0.9)
    result = taken(start(), request_rate=4000.0, concurrency=1)
    assert result.state == "invalid"
    assert [said for said in result.reasons if "requests a second were sent; 4000 were requested" in said]


def test_right_answers_pass_the_quality_check(start: Start) -> None:
    result = taken(start(), quality=True)
    assert result.state == "valid"
    assert result.quality is not None
    assert result.quality["right"] == result.quality["asked"]


def test_every_point_and_repeat_sends_other_prompts(start: Start) -> None:
    server = start()
    results = [taken(server, id, repeat) for id, repeat in (("one", 1), ("one", 2), ("two", 1))]
    assert len({result.seed for result in results}) == 3
    assert [result.state for result in results] == ["valid"] * 3


def test_the_same_point_sends_the_same_prompts_to_an_empty_cache(start: Start) -> None:
    server = start()
    first, second = taken(server), taken(server)
    assert first.seed == second.seed
    assert second.cache_hit_rate == 0


def test_a_cold_point_that_finds_its_prompts_in_the_cache_is_invalid(start: Start) -> None:
    server = start()
    taken(server)
    reused = Endpoint(server.url, server.model, server.engine, server.model_path, server.vocab_size, flushes=False)
    result = taken(reused)
    assert result.state == "invalid"
    assert "came from the prefix cache, in a cold point" in result.reasons[0]
    assert result.cache_hit_rate is not None
    assert result.cache_hit_rate > 0.5


def test_a_warm_point_says_how_warm_it_was(start: Start) -> None:
    result = taken(start(), cache="warm")
    assert (result.state, result.cache) == ("valid", "warm")
    assert result.cache_hit_rate is not None
    assert result.cache_hit_rate > 0.5


def test_a_shared_prefix_is_found_in_the_cache(start: Start) -> None:
    result = taken(start(), dataset="shared_prefix", prefix_len=48, prefix_groups=2, cache="warm", concurrency=1)
    assert result.state == "valid"
    assert result.cache_hit_rate is not None
    assert result.cache_hit_rate >= 0.7


def test_the_cache_is_emptied_once_the_server_is_idle(start: Start) -> None:
    server = start(decode_ms=20)
    with httpx.Client(trust_env=False) as client:
        body = {"input_ids": list(range(64)), "sampling_params": {"max_new_tokens": 20}, "stream": True}
        with client.stream("POST", f"{server.url}/generate", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            refused = httpx.post(f"{server.url}/flush_cache", trust_env=False)
            assert refused.status_code == 400
            for _ in lines:
                pass
        empty_cache(server, 30)
        assert client.get(f"{server.url}/requests").json()["cached_blocks"] == 0


def test_a_server_that_never_becomes_idle_is_no_measurement(start: Start) -> None:
    with pytest.raises(ServerError, match="BEN010"):
        empty_cache(start(deaf=True), 0.5)


def test_a_server_that_dies_leaves_failed_requests(start: Start) -> None:
    result = taken(start(die_after=10), warmup=0)
    assert result.state == "invalid"
    assert result.measures["completed"] <= 10
    assert result.measures["failed"] >= 30


def test_without_a_count_a_run_lasts_its_minimum_duration(start: Start) -> None:
    result = taken(start(), num_prompts=None, min_duration=1.0)
    assert result.state == "valid"
    assert result.measures["requests"] >= 40
    assert result.measures["duration_s"] >= 0.5


def test_an_open_loop_sends_at_the_rate_asked(start: Start) -> None:
    """Its clock is not looked at: when requests were due is drawn, and none is sent before that."""
    result = taken(start(), request_rate=40.0, concurrency=None)
    assert (result.state, result.reasons) == ("valid", ())
    due = [request["due"] for request in result.details]
    draw = random.Random(result.seed)
    assert [after - before for before, after in itertools.pairwise(due)] == pytest.approx(
        [draw.expovariate(40.0) for _ in due[1:]]
    )
    assert all(request["sent"] >= request["due"] for request in result.details)
