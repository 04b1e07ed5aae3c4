"""Loads that a planned server cannot take, refused before it starts; and who set the keys that refuse them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sglang_hydra.measure.sweep import runner, server_points
from sglang_hydra.measure.sweep.grid import read_grid
from sglang_hydra.measure.sweep.planning import Outcome, plan_sweep
from sglang_hydra.measure.sweep.points import Refused
from tests.measure.sweep.place import Place
from tests.plans import SEED, composer, requests

QWEN = ("gpu=h200", "model=qwen3_8b", "engine=sglang")
TINY = ("gpu=cpu", "model=tiny", "engine=transformers")


def outcome(*words: str, measured: bool = True) -> Outcome:
    return plan_sweep(composer(), read_grid(composer(), requests(*words), measured=measured), SEED, {})


def reasons(*words: str) -> list[Refused]:
    return list(outcome(*words).refused)


@pytest.mark.parametrize(
    ("words", "room"),
    [
        ((*QWEN, "bench.output_len=128"), 40960 - 2),
        ((*QWEN, "context_length=4096", "bench.output_len=128"), 4094),
        ((*QWEN, "max_total_tokens=2000", "bench.output_len=128"), 1998),
        ((*QWEN, "max_total_tokens=9000", "context_length=4096", "bench.output_len=128"), 4094),
        ((*TINY, "bench.output_len=128"), 8192),
    ],
)
def test_a_request_fits_to_the_last_token(words: tuple[str, ...], room: int) -> None:
    made = outcome(*words, f"bench.input_len={room - 128},{room - 127}")
    assert made.kept == 1
    (refused,) = made.refused
    assert (refused.id, refused.count) == ("BEN014", 1)
    assert f"{room + 1} tokens" in refused.message
    assert f"bench.input_len={room - 128}" in (refused.hint or "")


def test_a_workload_longer_than_the_context_says_so_with_the_file_that_set_it() -> None:
    made = outcome(*QWEN, "bench/workload=1k1k,128k1k")
    assert made.kept == 1
    (refused,) = made.refused
    assert refused.message == (
        "bench.input_len=131072 and bench.output_len=1024 make requests of 132096 tokens; "
        "the model's context of 40960 tokens is all there is, of which SGLang leaves 2 unused"
    )
    assert "bench.input_len was set by conf/bench/workload/128k1k.yaml:" in (refused.who or "")
    assert refused.hint == "bench.input_len=39934"


def test_a_longer_context_is_offered_where_the_model_has_one() -> None:
    (refused,) = reasons(*QWEN, "context_length=1024")
    assert refused.hint == "bench.input_len=894; or context_length=N up to 40960"
    assert "context_length was set by" in (refused.who or "")


def test_an_answer_alone_may_be_too_long() -> None:
    (refused,) = reasons(*QWEN, "bench.output_len=50000")
    assert refused.hint == "bench.output_len=39934"
    (refused,) = reasons(*QWEN, "bench.output_len=50000", "bench.input_len=45000")
    assert refused.hint is None


def test_a_kv_cache_that_cannot_hold_one_request_is_told() -> None:
    words = (*QWEN, "mem_fraction_static=0.12", "bench.input_len=15000,30000")
    made = outcome(*words)
    assert made.kept == 1
    (refused,) = made.refused
    assert "a KV cache of at most" in refused.message
    assert "a larger mem_fraction_static or tp_size" in (refused.hint or "")


def test_of_a_file_only_the_answers_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "why?"}\n')
    words = (*QWEN, "bench.dataset=file", f"bench.path={file}")
    assert outcome(*words).kept == 1
    (refused,) = reasons(*words, "bench.output_len=40960")
    assert refused.id == "BEN014"


@pytest.mark.parametrize(
    ("words", "id", "said"),
    [
        (("is_embedding=true",), "BEN015", "makes embeddings"),
        (("disaggregation_mode=prefill",), "BEN015", "answers only together"),
        (("bench.stream=false", "bench.slo.itl_ms=9"), "BEN002", "bench.stream=false"),
        (("bench.stream=false", "bench.slo.ttft_ms=9"), "BEN002", "bench.stream=false"),
        (("bench.output_len=1", "bench.slo.itl_ms=9"), "BEN002", "nothing follows the first token"),
        (("tp_size=16", "nnodes=2", "dist_init_addr=10.0.0.1:5000"), "RNR003", "2 nodes are planned"),
        (("skip_tokenizer_init=true", "bench.quality=true"), "BEN015", "bench.quality=True sends text"),
        (("launch=slurm",), "RNR003", "hydra/launcher runs a sweep elsewhere"),
        (("topology=replicas", "replicas=2", "topology.nodes=2"), "RNR003", "2 nodes are planned"),
    ],
)
def test_what_could_only_fail_once_it_runs_is_left_out(words: tuple[str, ...], id: str, said: str) -> None:
    (refused,) = reasons(*QWEN, *words)
    assert (refused.id, said in refused.message) == (id, True), refused.message
    assert refused.hint
    assert "was set by argument" in (refused.who or "") or id == "RNR003"


def test_points_that_are_only_judged_may_be_on_several_nodes() -> None:
    words = (*QWEN, "tp_size=16", "nnodes=2", "dist_init_addr=10.0.0.1:5000", "bench/workload=128k1k")
    assert outcome(*words, measured=False).kept == 1


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("bench.concurrency=0",), "bench.concurrency"),
        (("bench.slo.share=7",), "bench.slo.share"),
        (("bench.dataset=file",), "bench.dataset"),
        (("bench.request_rate=-1",), "bench.request_rate"),
    ],
)
def test_what_is_wrong_with_a_load_says_who_set_it(words: tuple[str, ...], key: str) -> None:
    (refused,) = reasons(*QWEN, *words)
    assert (refused.who or "").startswith(f"{key} was set by argument")


def test_another_engine_than_the_planned_one_is_not_measured(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_points, "plan_engine", lambda node, embedded_first: SimpleNamespace(name="transformers"))
    sweep = here.plan()
    assert runner.run(sweep) == 4
    (point,) = sweep.points()
    (failure,) = here.store.failures(point.point_id)
    assert (failure["findings"][0]["id"], here.starts()) == ("RNR001", [])
    assert "sglang is planned but not installed here" in failure["findings"][0]["message"]
