"""The screen of the hardware's limit: what bounds it and every number, in bytes, FLOPs and seconds."""

from __future__ import annotations

import re

import pytest

from sglang_hydra.fit.roofline import Load
from sglang_hydra.planning.choosing.forecast import known_limit, load_of_plan
from sglang_hydra.show.roofline import NOTE, limit_cells, roofline_lines, roofline_record
from sglang_hydra.text.screen import Line
from tests.fit.test_roofline import published_shares
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2
from tests.plans import planned

GPT_OSS = ("gpu=h200", "model=gpt_oss", "tp_size=1")


def _text(lines: list[Line]) -> str:
    return "\n".join("".join(part[0] for part in line) for line in lines)


def test_the_screen_has_every_number() -> None:
    shown = _text(roofline_lines(planned(*GPT_OSS, "bench.concurrency=64")))
    for words in (
        "bound by memory",
        "4 of 128 a token",
        "4,800 GB/s",
        "1,978 TFLOP/s",
        "at most 128 of them",
        "Formula",
    ):
        assert words in shown
    assert re.search(r"TPOT, 64 running +at least", shown)


def test_the_note_says_what_was_measured() -> None:
    shares = published_shares()
    found = f"of {len(shares)} published points the median reached {shares[len(shares) // 2]:.0%} of the limit, the "
    assert f"{found}best {shares[-1]:.0%}".replace("%", " %") in NOTE


LOADS: dict[str, tuple[tuple[str, ...], Load | None]] = {
    "concurrency": (("bench.concurrency=64",), Load(1024, 128, 64)),
    "more_than_the_cache_holds": (("bench.concurrency=100000",), Load(1024, 128, 882)),
    "as_many_as_the_cache_holds": ((), Load(1024, 128, 882)),
    "shared_prompts": (("bench/workload=shared_prefix", "bench.concurrency=4"), Load(4096, 256, 4, None)),
    "warm_cache": (("bench.cache=warm", "bench.concurrency=4"), Load(1024, 128, 4, None)),
    "no_prefix_cache": (("bench.cache=warm", "bench.concurrency=4", "disable_radix_cache=true"), Load(1024, 128, 4)),
    "drawn_lengths": (("bench.range_ratio=0.5", "bench.concurrency=4"), Load(768, 96, 4)),
}


@pytest.mark.parametrize(("typed", "load"), LOADS.values(), ids=LOADS)
def test_the_load_is_that_of_the_bench_node(typed: tuple[str, ...], load: Load | None) -> None:
    assert load_of_plan(planned(*GPT_OSS, *typed)) == load


def test_ttft_is_withheld_where_cache_hits_are_unknown() -> None:
    plan = planned(*GPT_OSS, "bench.cache=warm", "bench.concurrency=4")
    assert "withheld: cache hits are unknown" in _text(roofline_lines(plan))
    assert roofline_record(plan)["limit"]["ttft"] is None


UNKNOWN = {
    "no_bandwidth": (("gpu=ascend_910b", "model=qwen3_8b"), ("gpu.memory_bandwidth_gbps",)),
    "no_model": (("gpu=h200", "model_path=org/none"), ("config.json of org/none", "bench.concurrency")),
}


@pytest.mark.parametrize(("typed", "missing"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_missing_is_named(typed: tuple[str, ...], missing: tuple[str, ...]) -> None:
    plan = planned(*typed)
    known = known_limit(plan)
    assert (known.limit, known.unknown) == (None, missing)
    assert roofline_record(plan)["unknown"] == list(missing)
    assert all(name in _text(roofline_lines(plan)) for name in missing)
    assert [cell[0] for cell in limit_cells(known.limit)] == ["?", "?"]


def test_a_plan_that_cannot_start_says_so() -> None:
    plan = planned("gpu=h100", "model=deepseek_v3", "tp_size=4", "bench.concurrency=8")
    assert "cannot start: FIT001" in " ".join(_text(roofline_lines(plan)).split())
