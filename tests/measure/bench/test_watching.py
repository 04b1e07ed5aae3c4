"""What is seen of a server and its GPUs during a point: pages of real servers, and a GPU library that is not there."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_hydra.measure.bench import server as watched
from sglang_hydra.measure.bench.client import Builtin
from sglang_hydra.measure.bench.point import GpuWatch, driver_version, run_point
from sglang_hydra.measure.bench.server import Endpoint, Watch, inside, parse_metrics, read_metrics
from sglang_hydra.run.launch.log import BoundedLog
from tests.measure.bench.conftest import Start, load

DATA = Path(__file__).parents[2] / "data" / "bench"
# Each server was asked once to warm up, with 19 or so tokens, and three times the same 20 tokens for 6.
PAGES = {release: (DATA / f"metrics-{release}.txt").read_text() for release in ("0.5.2", "0.5.23")}


@pytest.mark.parametrize("release", PAGES)
def test_real_pages_are_read(release: str) -> None:
    found = parse_metrics(PAGES[release])
    assert found["prompt_tokens_total"] == 79
    assert found["generation_tokens_total"] == 26
    assert found["cached_tokens_total"] == 38
    assert found["cache_hit_rate"] == 0.95
    assert found["num_running_reqs"] == 0
    assert found["token_usage"] == 0


@pytest.mark.parametrize("release", PAGES)
def test_a_real_server_without_retractions_says_none(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter of 0.5.23 appears with the first one."""
    record = seen(monkeypatch, PAGES[release], PAGES[release])
    assert record["retracted"] == 0
    assert record["counted"]["prompt_tokens_total"] == 0
    assert record["cache_hit_rate"] is None


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("0.5.2", 'sglang:total_retracted_reqs{tp_rank="1"} 3.0'),
        ("0.5.23", 'sglang:num_retracted_requests_total{model_name="tiny"} 3.0'),
    ],
)
def test_retractions_are_counted_under_either_name(release: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, PAGES[release], f"{PAGES[release]}\n{line}\n")["retracted"] == 3


BATCH = "[2025-09-12 10:00:00 TP0] Prefill batch. #new-seq: 1, #new-token: 64, #cached-token: 0\n"
RETRACTED = (
    "[2025-09-12 10:00:01] KV cache pool is full. Retract requests. #retracted_reqs: %d, #new_token_ratio: 0.1\n"
)


@pytest.mark.parametrize(
    ("before", "during", "retracted"),
    [
        ("", BATCH, 0),
        (BATCH + RETRACTED % 9, BATCH, 0),
        (BATCH, BATCH + RETRACTED % 2 + BATCH + RETRACTED % 1, 3),
        ("", RETRACTED % 4, 4),
        (BATCH, "", 7),  # it logs nothing now: its metrics are all there is
    ],
)
def test_what_the_log_says_of_retractions_beats_the_metrics(
    before: str, during: str, retracted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metrics of 0.5.2 say it up to 40 steps late, so here they tell of seven that an earlier point met."""
    late = f'{PAGES["0.5.2"]}\nsglang:total_retracted_reqs{{tp_rank="1"}} 7.0\n'
    pages = [parse_metrics(PAGES["0.5.2"]), parse_metrics(late)]
    monkeypatch.setattr(watched, "read_metrics", lambda server: pages.pop(0))
    log = tmp_path / "server.log"
    log.write_text(before)
    with (
        Watch(Endpoint("http://127.0.0.1:9", "tiny", "sglang", "tiny", 2048, log=log)) as watch,
        log.open("a") as file,
    ):
        file.write(during)
    assert watch.record is not None
    assert watch.retracted == watch.record["retracted"] == retracted


def test_a_log_tells_of_retractions_without_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "read_metrics", lambda server: None)
    log = tmp_path / "server.log"
    with Watch(Endpoint("http://127.0.0.1:9", "tiny", "sglang", "tiny", 2048, log=log)) as watch:
        log.write_text(BATCH + RETRACTED % 2)
    assert (watch.record, watch.retracted) == (None, 2)


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_retractions_are_counted_when_the_log_turns_over(
    turns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came before does not count, and nothing counts twice: a full file has two names for a while."""
    monkeypatch.setattr(watched, "read_metrics", lambda server: None)
    filler = (BATCH * 40).encode()
    log = BoundedLog(tmp_path / "server.log", limit=len(filler))
    log.write((RETRACTED % 9).encode())
    with Watch(Endpoint("http://127.0.0.1:9", "tiny", "sglang", "tiny", 2048, log=log.path)) as watch:
        log.write((RETRACTED % 2).encode())
        for _ in range(turns):
            for line in filler.splitlines(keepends=True):
                log.write(line)
        log.write((RETRACTED % 1).encode())
    log.close()
    assert watch.retracted == 3


def test_a_log_that_was_cut_short_is_read_from_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "read_metrics", lambda server: None)
    log = tmp_path / "server.log"
    log.write_text(BATCH * 9)
    with Watch(Endpoint("http://127.0.0.1:9", "tiny", "sglang", "tiny", 2048, log=log)) as watch:
        log.write_text(BATCH + RETRACTED % 2)
    assert watch.retracted == 2


def seen(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> Any:
    pages = [parse_metrics(before), parse_metrics(after)]
    monkeypatch.setattr(watched, "read_metrics", lambda server: pages.pop(0))
    with Watch(Endpoint("http://127.0.0.1:9", "tiny", "sglang", "tiny", 2048)) as watch:
        pass
    return watch.record


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("", {}),
        ("<html>no metrics</html>", {}),
        ("sglang:a 1\nsglang:a 2\nother 3", {"a": 3.0, "other": 3.0}),
        ('sglang:token_usage{r="0"} 0.4\nsglang:token_usage{r="1"} 0.6', {"token_usage": 0.5}),
        ('sglang:a{name="b}c {d"} 7', {"a": 7.0}),
        ("sglang:a NaN\nsglang:b +Inf\nsglang:c x\nsglang:d", {}),
        ("sglang:a 1 1700000000000", {"a": 1.0}),
        ("# sglang:a 1", {}),
    ],
)
def test_pages_of_any_kind_are_read(page: str, expected: dict[str, float]) -> None:
    assert parse_metrics(page) == expected


def test_a_server_that_publishes_nothing_is_not_known(start: Start) -> None:
    assert read_metrics(start(metrics=False)) is None
    assert read_metrics(Endpoint("http://127.0.0.1:9", "tiny", "sglang", "tiny", 2048)) is None


def test_only_what_lies_in_the_window_counts() -> None:
    looks = [(1.0, "before"), (2.0, "in"), (3.0, "in"), (4.0, "after")]
    assert inside(looks, (1.5, 3.5)) == ["in", "in"]
    assert inside(looks, None) == ["before", "in", "in", "after"]
    assert inside(looks, (8.0, 9.0)) == ["before", "in", "in", "after"], "rather all than none"


class Nvml(SimpleNamespace):
    """NVIDIA's library with two GPUs: the first tells everything, the second no power and no clock."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1

    def __init__(self, reasons: int = 0) -> None:
        super().__init__(looks=0, open=0, reasons=reasons)

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise self.NVMLError
        self.looks += 1
        return index

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle == 1:
            raise self.NVMLError
        return 400_000

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        if handle == 1:
            raise self.NVMLError
        return 1980

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(used=1 << 30)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return int(self.reasons)


def watched_gpus(monkeypatch: pytest.MonkeyPatch, nvml: Nvml, *ids: int) -> GpuWatch:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with GpuWatch(ids) as watch:
        deadline = time.monotonic() + 30
        while not nvml.looks and ids and ids[0] < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert nvml.open == 0
    return watch


def test_power_clocks_and_memory_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watched_gpus(monkeypatch, Nvml(), 0, 1)
    assert watch.record is not None
    first, second = watch.record
    assert first["power_w"] == {"mean": 400, "max": 400}
    assert first["sm_clock_mhz"] == {"mean": 1980, "max": 1980}
    assert first["memory_used_mib"] == {"mean": 1024, "max": 1024}
    assert second == {"index": 1, "memory_used_mib": {"mean": 1024, "max": 1024}}
    assert watch.throttled == ()


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ()),  # idle
        (0x4, ()),  # the power cap, at which a busy GPU works
        (0x8, ("hardware slowdown",)),
        (0x20, ("software thermal slowdown",)),
        (0x40 | 0x8, ("hardware slowdown", "hardware thermal slowdown")),
        (0x80, ("hardware power brake",)),
    ],
)
def test_lowered_clocks_have_their_reasons(bits: int, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched_gpus(monkeypatch, Nvml(bits), 0).throttled == words


def test_a_point_on_a_gpu_that_is_too_hot_is_invalid(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(0x40))
    server = replace(start(), gpus=1, gpu_ids=(0,))
    result = run_point(server, Builtin(server), load(num_prompts=8), point_id="hot")
    assert (result.state, result.reasons) == (
        "invalid",
        ("the GPUs lowered their clocks: hardware thermal slowdown",),
    )
    assert result.gpus is not None
    assert result.gpus[0]["power_w"]["max"] == 400
    assert result.measures["output_throughput_per_gpu"] == result.measures["output_throughput"]


def test_a_gpu_that_is_gone_leaves_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched_gpus(monkeypatch, Nvml(), 7).record == []


def test_without_the_library_or_gpus_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with GpuWatch([0]) as watch:
        pass
    assert (watch.record, watch.throttled, driver_version()) == (None, (), None)
    nvml = Nvml()
    assert watched_gpus(monkeypatch, nvml).record is None
    assert driver_version() == "580.65"
