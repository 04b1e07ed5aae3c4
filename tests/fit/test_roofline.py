"""The hardware's limit: its formulas by hand, and that nothing that was published is above it."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest

from sglang_hydra import resolve
from sglang_hydra.architecture.formats import Stored
from sglang_hydra.architecture.known import Missing
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.fit.roofline import COMPUTE, LINK, MEMORY, Cache, Limit, Load, Roofline, Work, roofline_from
from sglang_hydra.fit.roofline_terms import peak_of, roofline_of
from sglang_hydra.planning.choosing.catalog import Model, models
from tests.fit.machines import DATA, dense, gpu
from tests.plans import composer

_FORMATS: Mapping[str, dict[str, Any] | None] = {
    "stored": None,
    "fp8": {"quant_method": "fp8"},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
}
_DRAWN = {"gpt-oss": 0.9, "deepseek-r1": 0.9, "trt-llm": 1.0}
"""The mean length as a share of the nominal one: InferenceX draws from 80 % to 100 % of it."""


@cache
def _models() -> dict[str, Model]:
    return {model.name: model for model in models(composer())}


def _roofline(on: str, name: str, stored: str = "stored", **arguments: Any) -> Roofline:
    model = _models()[name]
    facts = model.facts
    if _FORMATS[stored] is not None:
        facts = replace(facts, config={**(facts.config or {}), "quantization_config": _FORMATS[stored]})
    values = resolve({"model_path": model.path, **arguments}, gpu=gpu(on), model=facts, seed=1).values
    return roofline_of({**values, "kv_cache_dtype": arguments.get("kv_cache_dtype")}, gpu(on), facts)


class Published(NamedTuple):
    name: str
    limit: Limit
    tokens: float
    tpot: float | None
    ttft: float | None

    @property
    def share(self) -> float:
        return self.tokens / self.limit.tokens_per_gpu


@cache
def _published() -> list[Published]:
    with (DATA / "roofline" / "published.csv").open(encoding="utf-8") as file:
        return list(map(_row, csv.DictReader(file)))


def _row(row: dict[str, str]) -> Published:
    tp, share = int(row["tp"]), _DRAWN[row["source"]]
    arguments: dict[str, Any] = {"tp_size": tp, "ep_size": int(row["ep"])}
    if row["dp_attention"] == "1":
        arguments |= {"dp_size": tp, "enable_dp_attention": True}
    load = Load(
        float(row["input"]) * share,
        float(row["output"]) * share,
        float(row["running"]),
        0.0 if row["prefill"] == "1" else None,
    )
    found = _roofline(row["gpu"], row["model"], row["format"], **arguments)
    seconds = [float(row[name]) / 1000 if row[name] else None for name in ("tpot_ms", "ttft_ms")]
    return Published(" ".join(row.values()), found.limit(load), float(row["tokens_s_gpu"]), *seconds)


def published_shares() -> list[float]:
    """What each published point is of its limit, sorted."""
    return sorted(row.share for row in _published())


def test_nothing_that_was_published_is_above_the_limit() -> None:
    rows = _published()
    assert len(rows) >= 100
    above = [row.name for row in rows if row.share > 1]
    faster = [row.name for row in rows if row.tpot is not None and row.tpot < row.limit.tpot_one]
    sooner = [row.name for row in rows if row.ttft and row.limit.ttft and row.ttft < row.limit.ttft]
    assert (above, faster, sooner) == ([], [], [])


def test_the_limit_says_something() -> None:
    shares = published_shares()
    assert (round(statistics.median(shares), 2), round(max(shares), 2)) == (0.27, 0.76)


def _simple(**changed: Any) -> Roofline:
    """One GPU of 1 TB/s and 100 TFLOP/s: 10 GB of weights, 1 GB of four experts of which one is chosen."""
    fields = {
        "gpu": "simple",
        "bandwidth": 1e12,
        "peak": 1e14,
        "link": 0.0,
        "gpus": 1,
        "copies": 1,
        "replicas": 1,
        "stages": 1,
        "weights": 1e10,
        "experts": 1e9,
        "expert_number": 4,
        "expert_chosen": 1,
        "caches": (Cache("full attention", 1e5, 0.0), Cache("sliding window", 1e5, 0.0, 100)),
        "state": 0.0,
        "work": (Work("16 bit", 5e9, 1e14),),
        "exchanged": 0.0,
    }
    return Roofline(**{**fields, **changed})


ONE = 1e10 + 0.25e9 + 1e5 * 1100
STEPS: dict[str, tuple[dict[str, Any], float, str, float]] = {
    "one_request": ({}, 1, MEMORY, ONE / 1e12),
    "two_requests_meet_more_experts": ({}, 2, MEMORY, (1e10 + 1e9 * 7 / 16 + 2e5 * 1100) / 1e12),
    "compute_bounds_a_large_batch": ({"caches": ()}, 1000, COMPUTE, 1000 * 1e10 / 1e14),
    "replicas_divide_the_cache": ({"replicas": 2}, 2, MEMORY, (1e10 + 1e9 * 7 / 16 + 1e5 * 1100) / 1e12),
    "copies_divide_the_requests": ({"copies": 2}, 2, MEMORY, ONE / 1e12),
    "stages_take_turns": ({"stages": 2, "gpus": 2}, 1, MEMORY, 2 * ONE / 1e12),
    "a_link_may_bound": ({"link": 1e9, "exchanged": 1e8, "gpus": 2}, 1, LINK, 0.1),
}


@pytest.mark.parametrize(("changed", "requests", "bound", "seconds"), STEPS.values(), ids=STEPS)
def test_a_step_takes_as_long_as_its_largest_term(
    changed: dict[str, Any], requests: float, bound: str, seconds: float
) -> None:
    step = _simple(**changed).step(requests, 1000)
    assert (step.bound, step.time) == (bound, pytest.approx(seconds))


def test_more_requests_raise_the_limit_and_lower_the_floor_of_nobody() -> None:
    limits = [_simple().limit(Load(1000, 1000, number)) for number in (1, 2, 8, 64, 512)]
    assert [limit.tokens_per_gpu for limit in limits] == sorted(limit.tokens_per_gpu for limit in limits)
    assert len({limit.tpot_one for limit in limits}) == 1
    assert all(limit.tpot_all >= limit.tpot_one for limit in limits)


def test_a_prompt_that_may_be_cached_has_no_floor() -> None:
    known, unknown = (_simple().limit(Load(1e6, 10, 8, cached)) for cached in (0.0, None))
    assert known.ttft == pytest.approx(1e6 * 1e10 / 1e14)
    assert (known.bound, known.tokens_per_gpu) == (COMPUTE, pytest.approx(10 / (1e6 * 1e10 / 1e14), rel=1e-3))
    assert (unknown.ttft, unknown.bound) == (None, MEMORY)


def test_drafts_multiply_the_tokens_of_a_step() -> None:
    plain, drafting = _simple(), _simple(tokens=4, verified=4, expert_number=0)
    assert drafting.limit(Load(100, 100, 1)).tpot_one < plain.limit(Load(100, 100, 1)).tpot_one / 3


def test_a_roofline_is_read_as_it_was_written() -> None:
    found = _roofline("h200", "gpt_oss_120b", tp_size=2)
    assert roofline_from(found.to_json()) == found


CACHES: dict[str, tuple[str, dict[str, Any], list[tuple[str, float, int | None]]]] = {
    "latent_is_whole_on_every_gpu": ("deepseek_r1", {"tp_size": 8}, [("latent", 61 * 576, None)]),
    "windows_are_read_to_their_end": (
        "gpt_oss_120b",
        {"tp_size": 2},
        [("full attention", 18 * 4 * 128, None), ("sliding window", 18 * 4 * 128, 128)],
    ),
    "sparse_layers_read_the_best_blocks": (
        "minimax_m3",
        {"tp_size": 4},
        [
            ("sparse attention", 57 * 256, 2048),
            ("full attention", 3 * 256, None),
            ("index keys", 57 * 256, None),
        ],
    ),
    "heads_are_divided": (
        "llama_3_1_70b",
        {"tp_size": 8, "kv_cache_dtype": "auto"},
        [("full attention", 80 * 512, None)],
    ),
}


@pytest.mark.parametrize(("name", "arguments", "caches"), CACHES.values(), ids=CACHES)
def test_the_cache_is_the_fits(
    name: str, arguments: dict[str, Any], caches: list[tuple[str, float, int | None]]
) -> None:
    found = [(c.kind, pytest.approx(c.bytes_per_token), c.most) for c in _roofline("h200", name, **arguments).caches]
    assert found == caches


def test_what_is_missing_is_named() -> None:
    facts = gpu("h200")
    bare = replace(facts, extra={})
    with pytest.raises(Missing, match=r"gpu\.memory_bandwidth_gbps"):
        roofline_of({"tp_size": 1}, bare, dense())
    with pytest.raises(Missing, match=r"config\.json of org/model"):
        roofline_of({"model_path": "org/model"}, facts, ModelFacts(None))


PEAKS = {
    ("h200", "16 bit", 16.0): 989e12,
    ("h200", "fp8", 8.0): 1978e12,
    ("h200", "mxfp4", 4.0): 1978e12,
    ("b200", "nvfp4", 4.0): 9000e12,
    ("b200", "awq", 4.0): 4500e12,
    ("a100_80gb", "w8a8_int8", 8.0): 624e12,
    ("a100_80gb", "fp8", 8.0): 312e12,
    ("t4", "16 bit", 16.0): 0.0,
}


@pytest.mark.parametrize(("named", "peak"), PEAKS.items(), ids=str)
def test_a_format_computes_at_the_highest_published_rate(named: tuple[str, str, float], peak: float) -> None:
    on, name, bits = named
    assert peak_of(Stored(name, bits), gpu(on).extra["dense_tflops"]) == peak
