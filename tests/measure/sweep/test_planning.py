"""A sweep before anything is started: what is kept, refused, merged, in which order, and what it would cost."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.measure.sweep import planning
from sglang_hydra.measure.sweep.grid import read_grid
from sglang_hydra.measure.sweep.judging import Judge, gpus_of
from sglang_hydra.measure.sweep.planning import Outcome, plan_sweep, sweep_of, verdict_on
from sglang_hydra.measure.sweep.points import Source, point_id_of, workload_id_of
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from tests.plans import SEED, composer, planned, requests, written

H200 = ("gpu=h200", "model=qwen3_8b")


def outcome(*words: str, using: Composer | None = None) -> Outcome:
    using = using or composer()
    return plan_sweep(using, read_grid(using, requests(*words), measured=False), SEED, {})


def refused(*words: str, using: Composer | None = None) -> Finding:
    with pytest.raises(ConfigError) as failure:
        outcome(*words, using=using)
    return failure.value.findings[0]


def counts(made: Outcome) -> tuple[int, int, int, int]:
    return made.total, made.kept, made.merged, made.starts


def left_out(made: Outcome) -> dict[str, int]:
    return {item.id: item.count for item in made.refused}


def point_ids(made: Outcome) -> set[str]:
    return {point.point_id for group in made.groups for point in group.points}


def test_each_server_starts_once_with_its_points_in_a_row() -> None:
    made = outcome(*H200, "bench.concurrency=1,8", "tp_size=1,2,4")
    assert counts(made) == (6, 6, 0, 3)
    assert [[point.words for point in group.points] for group in made.groups] == [
        [(f"tp_size={size}", "bench.concurrency=1"), (f"tp_size={size}", "bench.concurrency=8")] for size in (1, 2, 4)
    ]
    assert [(group.gpus, group.nodes) for group in made.groups] == [(1, 1), (2, 1), (4, 1)]


@settings(max_examples=15, deadline=None)
@given(
    st.permutations([*H200, "tp_size=1,2,16", "bench.concurrency=1,8", "page_size=1,16", "bench/workload=1k1k,8k1k"])
)
def test_the_order_of_the_words_changes_nothing(words: list[str]) -> None:
    made, other = outcome(*words), outcome(*H200, *(word for word in sorted(words) if word not in H200))
    assert counts(made) == counts(other) == (24, 16, 0, 4)
    assert point_ids(made) == point_ids(other)
    assert made.folder == other.folder


def test_points_that_were_refused_are_counted_by_reason_with_an_example() -> None:
    made = outcome("gpu=h100,h200", "model=deepseek_v3", "tp_size=8,16", "bench.concurrency=1,8")
    assert counts(made) == (8, 2, 0, 1)
    assert left_out(made) == {"GPU001": 4, "FIT001": 2}
    (gpus, fit) = made.refused
    assert gpus.words == ("gpu=h100", "tp_size=16", "bench.concurrency=1")
    assert "16 ranks need 16 GPUs" in gpus.message
    assert "79.7 GiB" in fit.message
    assert made.left_out[0] == (("gpu=h100", "tp_size=8", "bench.concurrency=1"), ("FIT001",))


def test_what_only_some_points_cannot_have_is_a_reason_and_no_end() -> None:
    made = outcome(*H200, "engine.version=0.5.2,zero", "tp_size=1,2")
    assert counts(made) == (4, 2, 0, 2)
    assert left_out(made) == {"ENG012": 2}


def test_a_key_that_exists_in_some_groups_only_leaves_the_others_out(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            "experiment/one.yaml": "# @package _global_\ngpu: {count: 2}\n",
            "experiment/other.yaml": "# @package _global_\ntp_size: ${model.config.num_layers_of_nothing}\n",
        },
    )
    made = outcome(*H200, "experiment=one,other", "tp_size=1,2", using=Composer([tmp_path]))
    assert (made.kept, left_out(made)) == (4, {})
    made = outcome(*H200, "experiment=one,other", "page_size=1,16", using=Composer([tmp_path]))
    assert (made.kept, left_out(made)) == (2, {"CLI008": 2})


def test_force_starts_what_only_we_refuse() -> None:
    made = outcome("gpu=h100", "model=deepseek_v3", "tp_size=8", "launch.force=true,false")
    assert (made.kept, left_out(made)) == (1, {"FIT001": 1})


@pytest.mark.parametrize(
    "words", [("tp_size=2,2",), ("tp_size=1,2", "mem_fraction_static=0.8,0.80"), ("gpu=h200,h200",)]
)
def test_equal_points_are_one_however_they_were_typed(words: tuple[str, ...]) -> None:
    made = outcome("model=qwen3_8b", "gpu=h200", *words) if "gpu=h200,h200" not in words else outcome(*words, H200[1])
    assert made.merged == made.kept > 0
    assert made.total == 2 * made.kept


def test_a_value_that_is_what_sglang_resolves_to_anyway_is_the_same_server() -> None:
    made = outcome(*H200, "page_size=null,1")
    assert counts(made) == (2, 1, 1, 1)


def test_repeats_are_points_of_their_own_taken_round_by_round() -> None:
    made = outcome(*H200, "bench.concurrency=1,8", "bench.repeats=2")
    assert counts(made) == (4, 4, 0, 1)
    (group,) = made.groups
    assert [(point.words, point.repeat) for point in group.points] == [
        (("bench.concurrency=1",), 1),
        (("bench.concurrency=8",), 1),
        (("bench.concurrency=1",), 2),
        (("bench.concurrency=8",), 2),
    ]


def test_the_ids_are_those_of_the_plan_and_the_load() -> None:
    made = outcome(*H200, "tp_size=2", "bench.concurrency=4,8")
    plan = planned(*H200, "tp_size=2", "bench.concurrency=8")
    (group,) = made.groups
    last = group.points[-1]
    assert last.server_id == group.server_id == plan.server_id
    assert last.workload_id == workload_id_of(plan.nodes.plain["bench"])
    assert last.point_id == point_id_of(last.server_id, last.workload_id, 1)
    assert last.workload == plan.nodes.plain["bench"]
    assert point_id_of(last.server_id, last.workload_id, 2) != last.point_id


def test_what_is_measured_publishes_its_metrics() -> None:
    using = composer()
    made = plan_sweep(using, read_grid(using, requests(*H200, "engine=sglang", "tp_size=1,2")), SEED, {})
    assert [group.server_id for group in made.groups] == [
        planned(*H200, "engine=sglang", f"tp_size={size}", "enable_metrics=true").server_id for size in (1, 2)
    ]


def test_a_planned_sweep_can_be_planned_again_elsewhere() -> None:
    import pickle

    made = outcome(*H200, "tp_size=1,2", "bench.concurrency=1,8")
    sweep = pickle.loads(pickle.dumps(sweep_of(made, Source(seed=SEED))))
    assert [sweep.plan(group).server_id for group in sweep.groups] == [group.server_id for group in sweep.groups]
    assert [point.point_id for point in sweep.points()] == [
        point.point_id for group in made.groups for point in group.points
    ]
    assert [request.text for request in sweep.source.requests] == [*H200]


# Constraints, lists from files


def test_a_constraint_leaves_points_out() -> None:
    made = outcome(*H200, "tp_size=1,2,4", "pp_size=1,4", "sweep.where=tp_size * pp_size <= gpu.count and tp_size > 1")
    assert left_out(made) == {"SWP006": 3}
    assert made.refused[0].message.endswith("leaves it out: tp_size is 1, pp_size is 1, gpu.count is 8")
    assert {point.words for group in made.groups for point in group.points} == {
        ("tp_size=2", "pp_size=1"),
        ("tp_size=2", "pp_size=4"),
        ("tp_size=4", "pp_size=1"),
    }


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("'h100' == gpu.name or gpu.name == 'b200'", 1),
        ("""'gpu.name == "h100"'""", 1),
        ('"gpu.name in [1, 2]"', 0),
        ("gpu.name in ['h100','h200'], or x", None),
        ("null", 2),
    ],
)
def test_a_constraint_is_typed_with_or_without_quotes_around_it(typed: str, kept: int | None) -> None:
    words = ("gpu=h100,h200", "model=qwen3_8b", f"sweep.where={typed}")
    if kept is None:
        assert refused(*words).id == "SWP005"
    else:
        assert outcome(*words).kept == kept


def test_a_constraint_over_what_was_planned_and_over_the_load() -> None:
    words = ("gpu=h100,h200", "model=qwen3_8b", "bench.concurrency=1,64")
    made = outcome(*words, "sweep.where=fit.kv_tokens > 600000 or bench.concurrency == 1")
    assert (made.kept, left_out(made)) == (3, {"SWP006": 1})


def test_a_constraint_that_has_no_value_says_why() -> None:
    made = outcome("gpu=h200", "model=qwen3_8b,gpt_oss", "sweep.where=model.config.num_local_experts > 8")
    assert left_out(made) == {"SWP006": 1}
    assert "cannot be computed: None > 8" in made.refused[0].message


def test_a_sweep_can_be_a_file(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            "sweep/mine.yaml": """\
name: mine
params:
  tp_size: [1, 2, 4]
  mem_fraction_static: [0.7, 0.8, 0.85]
  bench.concurrency: "range(1, 3)"
zip: [[tp_size, mem_fraction_static]]
where: tp_size < 4
"""
        },
    )
    using = Composer([tmp_path])
    made = outcome(*H200, "sweep=mine", using=using)
    assert (made.kept, left_out(made), made.starts) == (4, {"SWP006": 2}, 2)
    assert made.folder.name.startswith("mine-")
    typed = outcome(*H200, "sweep=mine", "bench.concurrency=5", "sweep.where=true", using=using)
    assert (typed.kept, typed.starts) == (3, 3)
    assert {point.workload["concurrency"] for group in typed.groups for point in group.points} == {5}


@pytest.mark.parametrize("name", composer().options("sweep"))
def test_every_sweep_of_ours_has_points_to_run(name: str) -> None:
    made = outcome(*H200, f"sweep={name}")
    assert made.kept > 1
    assert made.folder.name.startswith(f"{name}-")


@pytest.mark.parametrize(
    ("word", "keys"),
    [
        ("sweep.params={tp_size: [1,2], bench.concurrency: [1,2]}", {"tp_size", "bench.concurrency"}),
        ("sweep.params.bench.concurrency=[1,2]", {"bench.concurrency"}),
        ("sweep.params.bench/workload=[1k1k,8k1k]", {"bench/workload"}),
    ],
)
def test_lists_can_be_typed_as_the_file_has_them(word: str, keys: set[str]) -> None:
    if "/" in word:
        word = "sweep.params={bench/workload: [1k1k,8k1k]}"
    assert set(read_grid(composer(), requests(*H200, word)).keys) == keys


# What is wrong with the whole


@pytest.mark.parametrize(
    ("words", "id", "said"),
    [
        (("tp_size=1,x",), "CLI002", "tp_size='x' is not an int"),
        (("gpu=h100,h2000",), "CLI006", "gpu=h2000 does not exist"),
        (("tpsize=1,2",), "CLI001", "'tpsize' is neither"),
        (("attention_backend=fa3,fa9",), "CLI002", "fa9"),
        (("bench.concurency=1,2",), "CLI001", "concurency"),
        (("tp_size=range(2,1)",), "SWP001", "no value"),
        (("sweep.params.tp_size=[]",), "SWP001", "no value"),
        (("tp_size=interval(1,4)",), "SWP002", "interval"),
        (("tp_size=1,2", "sweep.zip=[[tp_size,port]]"), "SWP003", "does not vary"),
        (("tp_size=1,2", "sweep.where=tpsize < 3"), "SWP005", "tpsize"),
        (("tp_size=1,2", "sweep.where=tp_size <"), "SWP005", "column"),
        (("tp_size=1,2", "sweep.start_seconds=-1"), "SWP009", "start_seconds"),
        (("tp_size=1,2", "sweep.budget_gpu_hours=-1"), "SWP009", "budget"),
        (("tp_size=1,2", "sweep.name=../x"), "SWP009", "cannot name a folder"),
        (("tp_size=1,2", "sweep.prune=all"), "SWP009", "sweep.prune=all is not forecast"),
        (("sweep=nothing",), "CLI006", "sweep=nothing does not exist"),
    ],
)
def test_a_mistake_that_every_point_would_have_is_told_before_any(words: tuple[str, ...], id: str, said: str) -> None:
    finding = refused("model=qwen3_8b", *words)
    assert (finding.id, said in finding.message) == (id, True), finding.message


def test_a_sweep_of_refused_points_only_says_so() -> None:
    made = outcome("gpu=h100", "model=deepseek_v3", "tp_size=1,16")
    finding = verdict_on(made)
    assert finding is not None
    assert (finding.id, finding.message) == (
        "SWP007",
        "none of the 2 points can be launched: 1 FIT001, 1 GPU001",
    )


def test_a_budget_is_held() -> None:
    words = (*H200, "tp_size=1,2", "bench.concurrency=1,8", "sweep.start_seconds=360", "sweep.point_seconds=36")
    made = outcome(*words, "sweep.budget_gpu_hours=0.35")
    assert made.estimate.gpu_hours == pytest.approx((360 + 2 * 36) / 3600 * 3)
    assert made.estimate.hours == pytest.approx((2 * 360 + 4 * 36) / 3600)
    finding = verdict_on(made)
    assert finding is not None
    assert (finding.id, "0.36 GPU hours" in finding.message) == ("SWP008", True)
    assert verdict_on(outcome(*words, "sweep.budget_gpu_hours=0.37")) is None


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (("bench.concurrency=ladder",), 13),
        (("sweep.search=bisect", "bench.slo.ttft_ms=9", "sweep.search_steps=5"), 5),
        (("sweep.search=bisect", "bench.slo.ttft_ms=9", "sweep.search_steps=5", "bench.repeats=2"), 10),
    ],
)
def test_a_search_is_estimated_with_all_its_steps(words: tuple[str, ...], steps: int) -> None:
    made = outcome(*H200, "tp_size=2", "sweep.start_seconds=360", "sweep.point_seconds=36", *words)
    assert made.estimate.hours == pytest.approx((360 + steps * 36) / 3600)
    assert made.estimate.gpu_hours == pytest.approx(2 * (360 + steps * 36) / 3600)


def test_one_point_is_a_sweep_too() -> None:
    assert counts(outcome(*H200)) == (1, 1, 0, 1)


# What it costs: counted, not timed


def test_points_that_share_a_server_share_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_hydra.measure.sweep import judging

    made: list[Any] = []
    real = judging.plan_composed
    monkeypatch.setattr(judging, "plan_composed", lambda *args, **more: made.append(1) or real(*args, **more))
    assert outcome(*H200, "bench.concurrency=range(1,20)", "tp_size=1,2").kept == 38
    assert len(made) == 2


def test_a_dry_run_of_many_points_lists_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_LISTED", 5)
    words = (*H200, "tp_size=1,2", "bench.concurrency=1,2,4,8")
    dry, real = outcome(*words, "sweep.dry_run=true"), outcome(*words)
    assert (dry.listed, dry.groups, dry.left_out) == (False, (), [])
    assert counts(dry) == counts(real) == (8, 8, 0, 2)
    assert dry.folder == real.folder
    assert dry.estimate == real.estimate


@pytest.mark.thorough
def test_what_is_composed_in_a_sweep_is_what_omegaconf_composes() -> None:
    from tests.compose.test_by_plain_values import ByOmegaConf

    words = (
        "gpu=h100,h200",
        "model=qwen3_8b,tiny",
        "tp_size=1,2",
        "mem_fraction_static=0.7,0.8",
        "bench.concurrency=1,8",
    )
    plain, real = outcome(*words), outcome(*words, using=ByOmegaConf())
    assert plain.total == 32
    assert counts(plain) == counts(real)
    assert point_ids(plain) == point_ids(real)
    assert [group.requests for group in plain.groups] == [group.requests for group in real.groups]


def test_combinations_are_made_one_at_a_time() -> None:
    grid = read_grid(composer(), requests(*H200, "tp_size=1,2", "max_running_requests=range(1,500000)"))
    judge = Judge(composer(), grid.common, seed=SEED, env={})
    points = planning.judged_points(grid, judge)
    assert [not judged.refused for _, judged in itertools.islice(points, 3)] == [True, True, True]


def test_the_gpus_of_a_server_are_counted_on_all_nodes() -> None:
    assert gpus_of(planned(*H200, "tp_size=16", "nnodes=2", "dist_init_addr=10.0.0.1:5000")) == 16
    assert gpus_of(planned(*H200, "tp_size=2", "dp_size=2")) == 4
    assert gpus_of(planned("gpu=h200", "model=deepseek_v3", "tp_size=8", "dp_size=8", "enable_dp_attention=true")) == 8
    assert gpus_of(planned("gpu=cpu", "model=tiny")) == 0


def test_servers_behind_a_router_are_judged_together() -> None:
    made = outcome(*H200, "topology=replicas", "replicas=2,4,16", "tp_size=2")
    assert made.starts == 2
    assert [group.gpus for group in made.groups] == [4, 8]
    assert set(left_out(made)) == {"TOP004"}


def test_the_fullest_node_says_how_many_gpus_each_is_asked_for() -> None:
    words = ("topology=pd", "topology.prefill.args.tp_size=4", "topology.decode.args.tp_size=8")
    made = outcome(*H200, *words, "topology.decode.nodes=1")
    (group,) = made.groups
    assert (group.gpus, group.nodes, group.gpus_of_node) == (12, 2, 8)
    (group,) = outcome(*H200, "tp_size=16", "nnodes=2", "dist_init_addr=10.0.0.1:5000").groups
    assert (group.gpus, group.nodes, group.gpus_of_node) == (16, 2, 8)


def test_the_place_of_a_word_is_kept() -> None:
    made = outcome(*H200, "tp_size=1,2")
    assert [request for group in made.groups for request in group.requests] == [
        Request("tp_size=1", "argument 3"),
        Request("tp_size=2", "argument 3"),
    ]
