"""The forecast: its terms, its intervals, and that the shipped coefficients are those of the shipped table."""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
from dataclasses import replace
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra import plan
from sglang_hydra.fit.forecast import Demand, Own, coefficients, forecast
from sglang_hydra.fit.forecast_server import ForecastServer
from sglang_hydra.fit.forecast_terms import TERMS, prompt_terms, step_terms
from sglang_hydra.fit.roofline import Load
from sglang_hydra.planning.choosing.forecast import server_of_plan
from tools.forecast_table import demand_of, rows_of, summary

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "sglang_hydra" / "fit" / "forecast_measured.jsonl.gz"


@cache
def server(*words: str) -> ForecastServer:
    return server_of_plan(plan(list(words)))


@cache
def rows() -> list[dict[str, Any]]:
    with gzip.open(TABLE, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


LLAMA = ("gpu=h200", "model=llama_3_1_8b", "tp_size=1")
R1 = ("gpu=h200", "model=deepseek_r1", "tp_size=8")
AS_PUBLISHED = ("disable_radix_cache=true",)
"""What the source's scripts add."""


def test_each_term_has_one_positive_coefficient() -> None:
    found = coefficients()["coefficients"]
    assert list(found) == list(TERMS)
    assert all(value > 0 for value in found.values())
    terms = {**step_terms(server(*R1), 8, 1000), **prompt_terms(server(*R1), 1000)}
    assert list(terms) == list(TERMS)


@pytest.mark.parametrize(
    "words",
    [
        (*R1, *AS_PUBLISHED),
        ("gpu=b200", "model=deepseek_r1", "tp_size=8", *AS_PUBLISHED),
        ("gpu=h100", "model=qwen3_32b", "tp_size=4"),
    ],
)
def test_the_shipped_coefficients_predict_the_shipped_table(words: tuple[str, ...]) -> None:
    wanted = list(words)
    errors = []
    for row in rows():
        if row["words"] == wanted and row["engine"] == "sglang":
            known = server(*wanted)._replace(release=row["release"])
            demand = Demand(row["input_len"], row["output_len"], row["concurrency"], spread=row["spread"])
            errors.append(abs(log(forecast(known, demand).tpot.value * 1e3 / row["tpot_ms"])))
    assert len(errors) >= 9
    assert statistics.median(errors) < 0.17


def test_more_clients_wait_longer_and_get_more_together() -> None:
    found = [forecast(server(*R1), Demand(1024, 1024, number)) for number in (1, 8, 64, 256)]
    assert [item.tpot.value for item in found] == sorted(item.tpot.value for item in found)
    assert [item.tokens.value for item in found] == sorted(item.tokens.value for item in found)
    assert all(item.tpot.low < item.tpot.value < item.tpot.high for item in found)


@pytest.mark.parametrize(
    "words",
    [
        ["gpu=a10", "model=deepseek_r1"],
        ["gpu=a100_80gb", "model=step_3_7_flash"],
        ["gpu=l4", "model=qwen3_next_80b_a3b"],
        ["gpu=t4", "model=kimi_k2_7_code_nvfp4"],
        ["gpu=h200", "model=deepseek_r1", "tp_size=8"],
    ],
)
def test_no_forecast_is_better_than_the_limit_of_the_hardware(words: list[str]) -> None:
    one = server(*words, "engine.version=0.5.2")
    for input_len, concurrency in ((1000, 1), (1000, 64), (8000, 64)):
        expected = forecast(one, Demand(input_len, 1000, concurrency))
        limit = one.roofline.limit(Load(input_len, 1000, expected.running, 0.0))
        assert expected.tpot.value >= limit.tpot_all * 0.9999
        assert expected.ttft
        assert expected.ttft.value >= (limit.ttft or 0) * 0.9999
        assert expected.tokens_per_gpu.value <= limit.tokens_per_gpu * 1.0001
        assert sum(expected.step.values()) + sum(expected.prompts.values()) == pytest.approx(expected.tpot.value)


def test_parts_are_the_whole() -> None:
    found = forecast(server(*R1), Demand(8192, 1024, 32))
    assert sum(found.step.values()) + sum(found.prompts.values()) == pytest.approx(found.tpot.value)


def test_clients_above_the_cache_wait_for_room() -> None:
    known = server(*LLAMA)._replace(held=20_000)
    fits, queues = (forecast(known, Demand(900, 100, number)) for number in (20, 80))
    assert queues.running == 21
    assert queues.ttft is not None
    assert fits.ttft is not None
    assert queues.ttft.value > fits.ttft.value + 2 * 100 * fits.tpot.value
    assert queues.tokens.value < 1.2 * fits.tokens.value


def test_a_wave_waits_for_its_first_tokens_and_is_less_disturbed_after() -> None:
    alike, apart = (forecast(server(*LLAMA), Demand(4096, 128, 64, spread=width)) for width in (0.0, 2.0))
    assert alike.ttft is not None
    assert apart.ttft is not None
    assert alike.tpot.value < apart.tpot.value
    assert alike.ttft.value > apart.ttft.value


def test_unknown_cache_hits_withhold_the_first_token() -> None:
    assert forecast(server(*LLAMA), Demand(1024, 128, 8, cached=None)).ttft is None
    cold, warm = (forecast(server(*LLAMA), Demand(4096, 128, 64, cached=share)) for share in (0.0, 0.9))
    assert warm.tpot.value < cold.tpot.value


def test_what_was_never_measured_is_named_and_widens() -> None:
    near = forecast(server(*R1), Demand(1024, 1024, 16))
    far = forecast(server("gpu=mi300x", "model=qwen3_8b"), Demand(1024, 1024, 16))
    assert not near.reasons
    assert "no measurement of this GPU" in far.reasons
    assert "no measurement of this family of models" in far.reasons
    assert far.tpot.high / far.tpot.low > near.tpot.high / near.tpot.low
    long = forecast(server(*R1), Demand(100_000, 1024, 16))
    assert any("input_len" in reason for reason in long.reasons)
    assert long.tpot.high / long.tpot.low > near.tpot.high / near.tpot.low


def test_all_to_all_sends_to_the_chosen_alone_and_says_that_nobody_measured_it() -> None:
    nodes = ("gpu=h200", "model=deepseek_r1", "tp_size=32", "nnodes=4", "dp_size=32", "enable_dp_attention=true")
    gathered, sent = server(*nodes), server(*nodes, "moe_a2a_backend=deepep")
    assert step_terms(sent, 1024, 1024)["exchange"] != step_terms(gathered, 1024, 1024)["exchange"]
    one = server("gpu=h200", "model=deepseek_r1", "tp_size=8", "ep_size=8", "moe_a2a_backend=deepep")
    few = one._replace(roofline=replace(one.roofline, expert_chosen=1))
    assert step_terms(few, 64, 1024)["exchange"] < step_terms(one, 64, 1024)["exchange"]
    demand = Demand(1024, 1024, 64)
    plain, found = (forecast(item, demand).tpot for item in (one._replace(all_to_all=False), one))
    assert found.high / found.low > 1.5 * plain.high / plain.low
    assert any("all-to-all" in reason for reason in forecast(one, demand).reasons)
    dense = server(*LLAMA, "moe_a2a_backend=deepep")
    assert not any("all-to-all" in reason for reason in forecast(dense, demand).reasons)


def test_drafts_speed_up_small_batches_most() -> None:
    drafts = ("speculative_algorithm=EAGLE", "speculative_num_steps=3", "speculative_eagle_topk=1")
    drafts += ("speculative_num_draft_tokens=4",)
    speculating = server(*R1, *drafts)
    gains = [
        forecast(server(*R1), Demand(1024, 1024, number)).tpot.value
        / forecast(speculating, Demand(1024, 1024, number)).tpot.value
        for number in (1, 48)
    ]
    assert gains[0] > max(1.2, gains[1])
    demand = Demand(1024, 1024, 1, accepted=4.0)
    assert forecast(speculating, demand).tpot.value < forecast(speculating, demand._replace(accepted=1.0)).tpot.value


def test_two_nodes_are_slower_than_one_for_one_user() -> None:
    one, two = server(*R1), server("gpu=h200", "model=deepseek_r1", "tp_size=16", "nnodes=2")
    demand = Demand(1024, 1024, 1)
    assert forecast(two, demand).tpot.value > forecast(one, demand).tpot.value
    assert any("nodes" in reason for reason in forecast(two, demand).reasons)


def test_own_factors_move_it_and_their_error_is_taken() -> None:
    demand = Demand(1024, 1024, 64)
    shipped = forecast(server(*R1), demand)
    own = forecast(server(*R1), demand, own=Own(step=log(2), prompt=log(2), tpot_error=0.05))
    assert own.tpot.value == pytest.approx(2 * shipped.tpot.value, rel=0.02)
    assert own.tpot.high / own.tpot.value == pytest.approx(exp(0.05))


def test_the_table_says_how_wrong_it_was(tmp_path: Path) -> None:
    good = [row for row in rows() if row["words"] == [*R1, *AS_PUBLISHED] and row["engine"] == "sglang"][:4]
    wrong = {**good[0], "tpot_ms": good[0]["tpot_ms"] * 100}
    silent = {**good[0], "words": ["gpu=none", "model=deepseek_r1"]}
    odd = {**good[0], "words": [*R1, "attention_backend=of_tomorrow", "no_such_word=1"]}
    typed = ["gpu=ascend_910b", "model=qwen3_8b", "gpu.memory_bandwidth_gbps=1600", "no_such_word=1"]
    slow = {**good[0], "words": typed, "tpot_ms": 1e6}
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in [*good, odd, wrong, slow, silent]), encoding="utf-8")
    command = [sys.executable, str(ROOT / "tools" / "forecast_table.py"), str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(printed.stdout.splitlines()[-1])
    assert found["rows"] == 8
    assert found["unanswered"] == 1
    assert found["inside_80_percent"] == 71.4
    assert f"taken as {' '.join(R1)}: " in printed.stderr
    assert "add gpu.memory_bandwidth_gbps=NUMBER" in printed.stdout
    assert 0 < found["tpot_median_percent"] < 20 < found["tpot_mape_percent"]
    assert found["ttft_median_percent"] is not None


WORDS = {
    "misspelt": ("gpu=H200 model=deepseek-r1 tp=8 isl=1024", R1),
    "a_flag": ("gpu=h200 model=deepseek_r1 tp_size=8 --kv-cache-dtype=fp8_e4m3", (*R1, "kv_cache_dtype=fp8_e4m3")),
    "odd_words_keep_the_others": (
        "gpu=gb200 model=deepseek_r1 tp_size=8 dp_size=8 enable_dp_attention=true attention_backend=of_tomorrow",
        ("gpu=gb200", "model=deepseek_r1", "tp_size=8", "dp_size=8", "enable_dp_attention=true"),
    ),
    "an_unknown_release": ("gpu=h200 model=deepseek_r1 tp_size=8 engine.version=0.5.99", R1),
    "a_checkpoint_of_4_bits": (
        "gpu=mi355x model_path=amd/DeepSeek-R1-0528-MXFP4-Preview tp_size=4 disable_radix_cache=true",
        ("gpu=mi355x", "model_path=nvidia/DeepSeek-R1-0528-FP4", "tp_size=4"),
    ),
    "a_checkpoint_of_8_bits": (
        "gpu=h200 model_path=someone/Qwen3-32B-Channel tp_size=2",
        ("gpu=h200", "model=qwen3_32b", "tp_size=2"),
    ),
}


@pytest.mark.parametrize(("typed", "meant"), WORDS.values(), ids=WORDS)
def test_words_that_no_plan_takes_are_mended(typed: str, meant: tuple[str, ...]) -> None:
    loads = {"engine": "sglang", "input_len": 900, "output_len": 900, "concurrency": 64, "tpot_ms": 9.0}
    found, unanswered = rows_of([{"words": typed.split(), **loads}])
    assert not unanswered
    assert found[0].server._replace(release="") == server(*meant)._replace(release="")


def test_times_that_nobody_measured_count_in_no_error() -> None:
    row = {"words": R1, "engine": "SGLang", "input_len": 900, "output_len": 900, "concurrency": 64}
    found, _ = rows_of([{**row, "tpot_ms": None, "ttft_ms": None}, {**row, "tpot_ms": 30.0}, row])
    record = summary([(item, forecast(item.server, demand_of(item.record))) for item in found], 1)
    assert (record["rows"], record["unanswered"], record["ttft_median_percent"]) == (4, 1, None)
    assert record["tpot_median_percent"] == record["tpot_mape_percent"] < 50


def test_the_page_has_the_coefficients_that_ship() -> None:
    page = (ROOT / "docs" / "forecast.md").read_text(encoding="utf-8")
    for name, value in coefficients()["coefficients"].items():
        assert f"| {name} | {value:g} | {TERMS[name].unit} |" in page
    assert all(f"| {name} | {value:g} |" in page for name, value in coefficients()["ttft"].items())
    assert subprocess.run([sys.executable, "tools/forecast_page.py", "--check"], cwd=ROOT, timeout=60).returncode == 0
