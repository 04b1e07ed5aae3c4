"""``sweep.prune=forecast`` and the order of servers: what the forecast finds worth measuring."""

from __future__ import annotations

from sglang_hydra.measure.sweep.planning import BEATEN
from tests.measure.sweep.test_planning import H200, counts, left_out, outcome

SLOW = ("disable_cuda_graph=true,false", "bench.concurrency=1")


def test_servers_of_most_tokens_a_gpu_start_first() -> None:
    made = outcome(*H200, "tp_size=8,1,2", "bench.concurrency=8,64")
    assert [group.gpus for group in made.groups] == [1, 2, 8]
    assert [group.gpus for group in outcome("gpu=cpu", "model=tiny", "page_size=1,2").groups] == [0, 0]


def test_what_another_point_beats_in_every_way_is_left_out_and_named() -> None:
    words = ("gpu=h200", "model=gpt_oss", "bench.output_len=1024", *SLOW)
    made = outcome(*words, "sweep.prune=forecast")
    assert (made.total, made.kept, left_out(made)) == (2, 1, {BEATEN: 1})
    assert made.refused[0].words == ("disable_cuda_graph=true",)
    assert "; disable_cuda_graph=false: " in made.refused[0].message
    assert outcome(*words).kept == 2


def test_points_of_other_loads_and_those_that_win_in_one_way_stay() -> None:
    made = outcome("gpu=h200", "model=qwen3_32b", "tp_size=1,2,4", "bench.concurrency=1,64", "sweep.prune=forecast")
    assert counts(made) == (6, 6, 0, 3)


def test_a_ladder_and_what_nothing_is_known_of_are_never_left_out() -> None:
    words = ("gpu=h200", "model=deepseek_r1", "tp_size=8", "disable_cuda_graph=true,false", "sweep.prune=forecast")
    assert outcome(*words, "bench.concurrency=ladder").kept == 2
    assert outcome("gpu=cpu", "model=tiny", *SLOW, "sweep.prune=forecast").kept == 2
