"""``sweep.search=tpe``: what it draws, what it is told, and that the folder alone makes it go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.measure.sweep import required_packages as needs
from sglang_hydra.measure.sweep.grid import read_grid
from sglang_hydra.measure.sweep.planning import Outcome, sweep_of, verdict_on
from sglang_hydra.measure.sweep.points import Source, Sweep
from sglang_hydra.measure.sweep.store import Store
from sglang_hydra.measure.sweep.tuning import MOST_IDLE, Proposal, Tuning, plan_search
from sglang_hydra.measure.sweep.tuning_run import run_search
from sglang_hydra.schemas import schema_of
from sglang_hydra.text.errors import ConfigError, MachineError
from tests.measure.sweep.place import DEADLINE_S, Place

H200 = ("gpu=h200", "model=qwen3_8b", "engine=sglang")
LOAD = "bench.concurrency=interval(1,64)"
Reached = Callable[[Proposal], Mapping[str, Any]]


def grid_of(*words: str) -> tuple[Composer, Any]:
    composer = Composer([], PRIMARY_NAME)
    asked = [Request(word, f"argument {number}") for number, word in enumerate(("sweep.search=tpe", *words), 1)]
    return composer, read_grid(composer, asked)


def tuning_of(folder: Path, *words: str) -> Tuning:
    return Tuning(*grid_of(*words), seed=7, store=Store(folder), env={})


def outcome(*words: str) -> Outcome:
    return plan_search(*grid_of(*words), seed=7, env={})


def valid(value: float) -> dict[str, Any]:
    return {"state": "valid", "reasons": [], "measures": {"output_throughput": value, "goodput": value}}


def takes(tuning: Tuning, reached: Reached, most: int = 1000) -> list[tuple[str, ...]]:
    """Measures what is proposed, as a runner would. Returns the words of what was handed out."""
    store = tuning._store
    assert store is not None
    handed = []
    while len(handed) < most and (proposal := tuning.advance()) is not None:
        handed.append(proposal.words)
        for point in proposal.points:
            record = reached(proposal)
            if "kind" in record:
                store.add_failure(point.point_id, record)
            else:
                store.add_result(point.point_id, record)
    return handed


def like(key: str, best: float) -> Reached:
    """More, the nearer a number is to ``best``."""

    def reached(proposal: Proposal) -> Mapping[str, Any]:
        return valid(1000 - abs(number(proposal.words, key) - best))

    return reached


def number(words: tuple[str, ...], key: str) -> float:
    return next(float(word.partition("=")[2]) for word in words if word.startswith(f"{key}="))


def test_the_same_seed_draws_the_same_however_it_was_typed(tmp_path: Path) -> None:
    words = (*H200, LOAD, "tp_size=1,2,4", "mem_fraction_static=interval(0.7,0.9)", "sweep.trials=14")
    reached = like("bench.concurrency", 40)
    first = takes(tuning_of(tmp_path / "a", *words), reached)
    again = takes(tuning_of(tmp_path / "b", *reversed(words)), reached)
    other = takes(tuning_of(tmp_path / "c", *words, "sweep.seed=2"), reached)
    assert len(first) == 14
    assert first == again
    assert first != other


def test_it_looks_where_it_was_good(tmp_path: Path) -> None:
    tuning = tuning_of(tmp_path, *H200, "bench.concurrency=interval(1,1000)", "sweep.trials=50")
    handed = takes(tuning, like("bench.concurrency", 700))
    at_random, later = handed[:10], handed[25:]
    assert tuning.best is not None
    assert abs(number(tuning.best[0].words, "bench.concurrency") - 700) < 30
    off = [
        sum(abs(number(words, "bench.concurrency") - 700) for words in part) / len(part) for part in (at_random, later)
    ]
    assert off[1] < off[0] / 2
    assert tuning.stop == "sweep.trials=50 points are measured"


def test_numbers_are_spelled_as_anyone_would_type_them(tmp_path: Path) -> None:
    tuning = tuning_of(
        tmp_path,
        *(*H200, LOAD, "mem_fraction_static=interval(0.7,0.9)", "chunked_prefill_size=range(1024,8193,1024)"),
        *("schedule_conservativeness=range(0.5,1.01,0.1)", "bench.request_rate=interval(1,8)", "sweep.trials=30"),
    )
    for words in takes(tuning, lambda proposal: valid(1.0)):
        values = {word.partition("=")[0]: word.partition("=")[2] for word in words}
        assert values["bench.concurrency"] in map(str, range(1, 65))
        assert 0.7 <= float(values["mem_fraction_static"]) <= 0.9
        assert len(values["mem_fraction_static"]) <= 6
        assert values["chunked_prefill_size"] in map(str, range(1024, 8193, 1024))
        assert values["schedule_conservativeness"] in ("0.5", "0.6", "0.7", "0.8", "0.9", "1.0")
        assert 1 <= float(values["bench.request_rate"]) <= 8


def test_what_cannot_be_launched_is_told_and_never_handed_out(tmp_path: Path) -> None:
    tuning = tuning_of(tmp_path, *H200, "tp_size=1,2,16", LOAD, "sweep.trials=30")
    handed = takes(tuning, like("bench.concurrency", 40))
    refused = [proposal for proposal, brought in tuning.proposals if brought.state == "refused"]
    assert len(handed) == 30
    assert not any("tp_size=16" in words for words in handed)
    assert refused
    assert all("tp_size=16" in proposal.words for proposal in refused)
    told = [trial for trial in tuning._study.trials if trial.constraints.get("launchable", 0) > 0]
    assert len(told) == len(refused)


def test_the_same_measurement_is_told_again_and_not_made_again(tmp_path: Path) -> None:
    tuning = tuning_of(tmp_path, *H200, "page_size=1,null", "bench.concurrency=1,2", "bench.min_duration=5,5.0")
    handed = takes(tuning, lambda proposal: valid(1.0))
    assert len(handed) == len({point.point_id for proposal, _ in tuning.proposals for point in proposal.points}) == 2
    assert len(tuning.proposals) > 2
    assert tuning.stop == "all 8 combinations are known"
    assert all(brought.value == 1.0 for _, brought in tuning.proposals)


def test_a_search_of_few_that_are_not_all_found_ends_too(tmp_path: Path) -> None:
    words = [f"bench.seed={','.join(map(str, range(400)))}", "sweep.trials=10000"]
    tuning = tuning_of(tmp_path, *H200, *words, "sweep.where=bench.seed < 3")
    takes(tuning, lambda proposal: valid(1.0))
    assert tuning.stop == f"{MOST_IDLE} proposals in a row brought nothing new"


def test_the_folder_alone_makes_it_go_on(tmp_path: Path) -> None:
    words = (*H200, "tp_size=1,2,16", LOAD)
    reached = like("bench.concurrency", 40)
    whole = takes(tuning_of(tmp_path / "whole", *words, "sweep.trials=20"), reached)
    parts = []
    for most in (1, 6, 3, 1000):
        parts += takes(tuning_of(tmp_path / "parts", *words, "sweep.trials=20"), reached, most)
    assert parts == whole
    assert takes(tuning_of(tmp_path / "parts", *words, "sweep.trials=20"), reached) == []
    more = takes(tuning_of(tmp_path / "parts", *words, "sweep.trials=25"), reached)
    assert len(more) == 5
    assert tuning_of(tmp_path, *words).id == tuning_of(tmp_path, *words, "sweep.trials=9", "sweep.folder=x").id
    assert tuning_of(tmp_path, *words).id != tuning_of(tmp_path, *words, "bench.input_len=99").id


def test_results_that_are_there_already_count(tmp_path: Path) -> None:
    words = (*H200, "tp_size=1,2", "bench.concurrency=1,2,4,8", "sweep.trials=8")
    takes(tuning_of(tmp_path, *words, "sweep.seed=3"), lambda proposal: valid(1.0))
    other = tuning_of(tmp_path, *words, "sweep.seed=4")
    assert takes(other, lambda proposal: valid(1.0)) == []
    assert len(other.measured) == 8


@pytest.mark.parametrize(
    ("record", "state", "feasible"),
    [
        (
            {"state": "invalid", "reasons": ["1 of 2 requests failed"], "measures": {"output_throughput": 9e9}},
            "invalid",
            None,
        ),
        ({"kind": "oom", "final": True, "retryable": False, "findings": []}, "failed", False),
        ({"kind": "port", "final": True, "retryable": True, "findings": []}, "failed", None),
    ],
)
def test_what_does_not_count_is_never_the_best(
    tmp_path: Path, record: dict[str, Any], state: str, feasible: bool | None
) -> None:
    tuning = tuning_of(tmp_path, *H200, LOAD, "sweep.trials=12")

    def reached(proposal: Proposal) -> Mapping[str, Any]:
        good = number(proposal.words, "bench.concurrency") < 32
        return valid(1.0) if good else record

    takes(tuning, reached)
    states = {brought.state for _, brought in tuning.measured}
    assert states == {"valid", state}
    assert tuning.best is not None
    assert number(tuning.best[0].words, "bench.concurrency") < 32
    trials = tuning._study.trials
    told = [trial for trial, (_, brought) in zip(trials, tuning.proposals, strict=True) if brought.state == state]
    if feasible is None:
        assert {trial.state.name for trial in told} == {"FAIL"}
    else:
        assert all(trial.constraints["launchable"] > 0 for trial in told)


def test_repeats_are_one_point_with_their_mean(tmp_path: Path) -> None:
    tuning = tuning_of(tmp_path, *H200, "bench.concurrency=1,2", "bench.repeats=3")
    values = iter((1.0, 2.0, 6.0, 4.0, 4.0, 4.0))
    assert len(takes(tuning, lambda proposal: valid(next(values)))) == 2
    assert {round(brought.value or 0, 6) for _, brought in tuning.measured} == {3.0, 4.0}


def test_goodput_counts_where_there_is_an_slo_and_is_divided_by_the_gpus(tmp_path: Path) -> None:
    record = {"state": "valid", "reasons": [], "measures": {"output_throughput": 80.0, "goodput": 8.0}}
    words = (*H200, "tp_size=4", "bench.concurrency=1,2")
    without, within = tuning_of(tmp_path / "a", *words), tuning_of(tmp_path / "b", *words, "bench.slo.ttft_ms=500")
    for tuning, value, said in ((without, 20.0, "there is no SLO"), (within, 2.0, "goodput")):
        takes(tuning, lambda proposal: record)
        assert tuning.best is not None
        assert tuning.best[1] == value
        assert said in str(tuning.objective)


def test_its_record_follows_the_schema(tmp_path: Path) -> None:
    tuning = tuning_of(tmp_path, *H200, "tp_size=1,16", LOAD, "sweep.trials=3")
    takes(tuning, like("bench.concurrency", 40), most=2)
    tuning.advance()
    tuning.keep()
    record = Store(tmp_path).read_search(tuning.id)
    jsonschema.validate(record, schema_of("search"))
    assert record is not None
    assert {trial["state"] for trial in record["trials"]} >= {"valid", "open"}
    assert len(record["steps"]) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing varies"),
        ((LOAD, "sweep.trials=0"), "sweep.trials=0 must be at least 1 (sweep.trials was set by argument"),
        ((LOAD, "sweep.seed=-1"), "sweep.seed=-1 must be between 0"),
        (("bench.slo.ttft_ms=100,200",), "no better or worse than under another"),
        (("tp_size=1,2", "bench.concurrency=ladder"), "a search of its own"),
        (("bench.concurrency=8,ladder",), "a search of its own"),
        ((LOAD, "hydra/launcher=joblib"), "other launchers cannot"),
        (("tp_size=interval(0.5,1.5)",), "tp_size=0.5 is not an int"),
        (("tp_size=1,2", LOAD, "sweep.zip=[[tp_size,bench.concurrency]]"), "has no list of values"),
        ((f"bench.seed={','.join(map(str, range(1025)))}",), "more than 1024 values"),
        ((LOAD, "sweep.where=nothing > 1"), "nothing is neither"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused_before_anything(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as failure:
        outcome(*H200, *words)
    assert said in failure.value.findings[0].message


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda name: None)
    with pytest.raises(MachineError) as failure:
        outcome(*H200, LOAD)
    assert failure.value.findings[0].hint == "pip install 'sglang-hydra[search]'"


def test_the_plan_shows_the_first_proposals_and_what_all_would_take() -> None:
    made = outcome(*H200, "tp_size=1,2,16", LOAD, "sweep.trials=20")
    assert 0 < made.kept < 10
    assert made.kept == sum(len(group.points) for group in made.groups) >= made.starts
    assert made.total == made.kept + sum(item.count for item in made.refused)
    assert made.estimate.hours == pytest.approx(20 / made.kept * (made.starts * 2 + made.kept) / 60)
    assert outcome(*H200, LOAD).starts == 1
    assert verdict_on(made) is None
    nothing = outcome(*H200, "tp_size=16,32")
    refusal = verdict_on(nothing)
    assert refusal is not None
    assert refusal.id == "SWP007"


def search(place: Place, *words: str) -> tuple[int, Tuning, Sweep]:
    """As the command does it, on fake servers."""
    asked = {word.partition("=")[0]: word for word in place.words(*words)}
    composer, grid = grid_of(*asked.values())
    sweep = sweep_of(plan_search(composer, grid, 7), Source(seed=7))
    store = Store(sweep.folder)
    tuning = Tuning(composer, grid, 7, store)
    return run_search(sweep, tuning, store), tuning, sweep


def test_points_on_one_server_start_it_once(here: Place) -> None:
    words = ("bench.concurrency=interval(1,9)", "bench.output_len=2,3", "sweep.trials=4")
    code, tuning, _ = search(here, *words)
    assert (code, len(here.starts()), len(here.results())) == (0, 1, 4)
    assert tuning.best is not None
    record = json.loads(here.store.search_file(tuning.id).read_text())
    jsonschema.validate(record, schema_of("search"))
    assert record["over"]
    assert set(record["steps"]) == set(here.results()) == set(here.store.read_sweep()["points"])
    code, again, _ = search(here, *words)
    assert (code, len(here.starts()), len(here.results())) == (0, 1, 4)
    assert [proposal.words for proposal, _ in again.proposals] == [proposal.words for proposal, _ in tuning.proposals]
    search(here, *words[:2], "sweep.trials=6")
    assert (len(here.starts()), len(here.results())) == (2, 6)


def test_each_server_that_is_proposed_starts_and_refused_ones_do_not(here: Place) -> None:
    words = ("max_running_requests=5,6", "page_size=1,0", "sweep.trials=2")
    code, tuning, _ = search(here, *words)
    assert (code, len(here.starts()), len(here.results())) == (0, 2, 2)
    kept = here.store.read_sweep()
    assert sum(item["count"] for item in kept["refused"]) == len(
        {proposal.key for proposal, brought in tuning.proposals if brought.state == "refused"}
    )
    jsonschema.validate(json.loads((here.sweep_folder / "sweep.json").read_text()), schema_of("sweep"))


def test_a_server_that_fails_is_told_and_the_search_goes_on(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    here.fault = {"decode_ms": 1, "start_fails": 9}
    monkeypatch.setenv("FAKE_SGLANG", here.env["FAKE_SGLANG"])
    code, tuning, _ = search(here, "max_running_requests=5,6", "sweep.retries=0")
    assert code == 4
    assert [brought.state for _, brought in tuning.measured] == ["failed", "failed"]
    assert tuning.best is None


def ended(place: Place, words: list[str]) -> str:
    """What a search prints that was not interrupted; on a slow machine none of so short points may count."""
    process = place.start(words)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (0, 4), said
    return said


def test_the_command_searches_and_goes_on_by_itself(place: Place) -> None:
    words = ("bench.concurrency=interval(1,9)", "sweep.search=tpe", "sweep.trials=2")
    said = ended(place, place.command(*words))
    assert "search over: sweep.trials=2 points are measured; 2 points measured, 0 refused" in said
    assert "there is no SLO" in said
    said = ended(place, [*place.command(verb=("resume",))[:3], str(place.sweep_folder), "sweep.trials=3"])
    assert "3 points measured" in said
    assert (len(place.starts()), len(place.results())) == (2, 3)
