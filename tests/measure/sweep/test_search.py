"""Searches: which values they try, what they find, and that nothing is measured twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sglang_hydra.measure.sweep.runner import run
from sglang_hydra.measure.sweep.search import Bisection, Ladder, Strategy, Tried
from sglang_hydra.text.errors import ConfigError
from tests.commands import must_follow
from tests.measure.sweep.place import Place


def asked(strategy: Strategy, told: Callable[[float], Tried]) -> tuple[list[float], float | None]:
    """The values that a strategy tries, in their order, and the one that it finds."""
    so_far: list[Tried] = []
    while (value := strategy.ask(so_far)) is not None:
        so_far.append(told(value))
        assert len(so_far) < 100
    best = strategy.best(so_far)
    return [item.value for item in so_far], best.value if best else None


def server(most: float) -> Callable[[float], Tried]:
    """Meets the SLO up to ``most``."""
    return lambda value: Tried(value, value <= most, value * 10)


@pytest.mark.parametrize(
    ("throughput", "tried", "best"),
    [
        ([10, 20, 40, 41, 99], [1, 2, 4, 8], 8),
        ([10, 20, 19], [1, 2, 4], 2),
        ([10, None], [1, 2], 1),
        ([None], [1], None),
        ([0, 0], [1, 2], 1),
    ],
)
def test_a_ladder_climbs_until_nothing_is_gained(
    throughput: Sequence[float | None], tried: list[float], best: float | None
) -> None:
    rungs = {2**number: reached for number, reached in enumerate(throughput)}

    def told(value: float) -> Tried:
        reached = rungs.get(int(value), 0)
        return Tried(value, reached is not None, reached or 0)

    values, found = asked(Ladder(0.05), told)
    assert (values, found) == (tried, best)


@pytest.mark.parametrize("most", [0.5, 1, 2, 3, 7, 8, 9, 63, 64, 100, 4096, 9999])
def test_a_bisection_finds_the_highest_whole_number_that_does(most: float) -> None:
    values, found = asked(Bisection(1, 4096, 100, whole=True), server(most))
    assert found == (None if most < 1 else min(int(most), 4096))
    assert len(values) == len(set(values)) <= 2 * 12 + 2
    assert all(value == int(value) for value in values)


@pytest.mark.parametrize("most", [1.5, 12.3, 700.0])
def test_a_bisection_of_rates_comes_close(most: float) -> None:
    values, found = asked(Bisection(1, 4096, 100, whole=False), server(most))
    assert found is not None
    assert most / 1.06 <= found <= most
    assert len(values) < 20


def test_a_bisection_stays_within_its_bounds_and_steps() -> None:
    assert asked(Bisection(4, 6, 100, whole=True), server(99)) == ([4, 6], 6)
    assert asked(Bisection(4, 4, 100, whole=True), server(99)) == ([4], 4)
    values, found = asked(Bisection(1, 4096, 3, whole=True), server(99))
    assert (values, found) == ([1, 2, 4], 4)


def test_a_ladder_is_a_row_of_points_and_is_never_climbed_twice(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    _slow(here, monkeypatch, reject_above=2)
    sweep = here.plan("bench.concurrency=ladder", "bench.num_prompts=8", ladder_gain=-1.0)
    assert run(sweep) == 0
    results = here.results()
    states = {record["workload"]["concurrency"]: record["state"] for record in results.values()}
    assert states == {1: "valid", 2: "valid", 4: "invalid"}
    assert len(here.starts()) == 1
    (search,) = [here.store.read_search(file.stem) for file in here.sweep_folder.glob("searches/*.json")]
    must_follow(search, "search")
    assert search is not None
    assert search["over"]
    assert set(search["steps"]) == set(results) == set(here.store.read_sweep()["points"])
    assert run(sweep) == 0
    assert (len(here.starts()), here.results()) == (1, results)


@pytest.mark.thorough
def test_a_bisection_goes_on_where_it_ended(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    _slow(here, monkeypatch, reject_above=5)
    words = ("bench.num_prompts=16", "bench.slo.e2e_ms=60000")
    settings: dict[str, Any] = {"search": "bisect", "search_max": 16}
    from sglang_hydra.measure.sweep import serving

    real, left = serving.run_point, [2]

    def only_two(*args: Any, **named: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(serving, "run_point", only_two)
        with pytest.raises(KeyboardInterrupt):
            run(here.plan(*words, **settings))
    before = here.results()
    assert len(before) == 2
    sweep = here.plan(*words, **settings)
    assert run(sweep) == 0
    after = here.results()
    assert {id: after[id] for id in before} == before
    tried = {record["workload"]["concurrency"]: record["state"] for record in after.values()}
    assert tried == {1: "valid", 2: "valid", 4: "valid", 8: "invalid", 6: "invalid", 5: "valid"}
    (point,) = sweep.points()
    (file,) = here.sweep_folder.glob("searches/*.json")
    search = here.store.read_search(file.stem)
    assert search is not None
    assert search["planned"] == point.point_id
    assert after[search["best"]]["workload"]["concurrency"] == 5


def test_a_search_of_a_server_that_does_not_start_fails(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    _slow(here, monkeypatch, start_fails=9)
    sweep = here.plan("bench.concurrency=ladder")
    assert run(sweep) == 4
    assert here.states(sweep) == {"failed": 1}


def test_a_ladder_beside_plain_points_shares_their_results(here: Place) -> None:
    run(here.plan("bench.concurrency=1,2"))
    sweep = here.plan("bench.concurrency=ladder", ladder_gain=100.0)
    assert run(sweep) == 0
    assert len(here.results()) == 2
    assert len(here.starts()) == 2


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        ((), {}, "no SLO is set"),
        (("bench.slo.ttft_ms=9",), {"search_key": "bench.input_len"}, "one of bench.concurrency"),
        (("bench.slo.ttft_ms=9",), {"search_min": 8.0, "search_max": 4.0}, "there is nothing to try"),
        (("bench.slo.ttft_ms=9", "bench.concurrency=ladder"), {}, "are two different searches"),
        (("bench.slo.ttft_ms=9", "bench.concurrency=1,2"), {}, "bench.concurrency varies"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(
    place: Place, words: tuple[str, ...], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        run(place.plan(*words, search="bisect", **settings))
    assert not place.sweep_folder.exists()


def _slow(place: Place, monkeypatch: pytest.MonkeyPatch, **fault: Any) -> None:
    place.fault = {"decode_ms": 40, **fault}
    monkeypatch.setenv("FAKE_SGLANG", place.env["FAKE_SGLANG"])
