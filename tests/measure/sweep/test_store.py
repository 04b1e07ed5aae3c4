"""A sweep's folder: what is in it is never lost, overwritten or misread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.measure.sweep.store import DONE, FAILED, OPEN, Store
from sglang_hydra.text.errors import ConfigError
from tests.commands import must_follow
from tests.measure.sweep.place import Place

ID = "0123456789abcdef"


def result(**more: Any) -> dict[str, Any]:
    return {"state": "valid", "reasons": [], "measures": {}, **more}


def failure(final: bool = True, **more: Any) -> dict[str, Any]:
    return {"kind": "client", "retryable": not final, "final": final, "findings": [], "log_tail": [], **more}


def test_a_point_is_open_then_failed_then_done(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.state(ID).state == OPEN
    store.add_failure(ID, failure(final=False))
    assert store.state(ID).state == OPEN
    store.add_failure(ID, failure())
    assert store.state(ID).state == FAILED
    assert store.add_result(ID, result(seed=1))
    assert store.state(ID).state == DONE


def test_a_result_is_never_overwritten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.add_result(ID, result(seed=1), "one\n")
    assert not store.add_result(ID, result(seed=2))
    record = store.state(ID).record
    assert record is not None
    assert record["seed"] == 1


def test_the_requests_of_a_result_are_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.add_result(ID, result(), "the first")
    assert not store.add_result(ID, result(), "another")
    assert (store.point(ID) / "raw" / "requests.jsonl").read_text() == "the first"


def test_the_requests_of_what_is_taken_again_are_kept_with_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in (1, 2):
        assert store.add_result(ID, result(), f"requests {number}")
        store.reopen(ID)
    assert store.add_result(ID, result(), "requests 3")
    kept = sorted(store.point(ID).glob("**/requests.jsonl"))
    assert [file.read_text() for file in kept] == ["requests 3", "requests 1", "requests 2"]
    assert sorted(path.name for path in (store.point(ID) / "superseded").iterdir()) == [
        "1.json",
        "2.json",
        "raw-1",
        "raw-2",
    ]


def test_what_is_taken_again_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seed in (1, 2):
        store.add_failure(ID, failure())
        store.add_result(ID, result(seed=seed))
        store.reopen(ID)
        assert store.state(ID).state == OPEN
    aside = store.point(ID) / "superseded"
    assert [json.loads((aside / f"{number}.json").read_text())["seed"] for number in (1, 2)] == [1, 2]
    assert sorted(path.name for path in aside.iterdir()) == ["1.json", "2.json", "failed-1", "failed-2"]


def test_a_folder_of_somebody_else_is_left_alone(place: Place) -> None:
    (place.sweep_folder / "thesis").mkdir(parents=True)
    for act in (place.store.check, place.store.read_sweep, lambda: place.store.begin(place.plan())):
        with pytest.raises(ConfigError) as caught:
            act()
        assert caught.value.findings[0].id == "STO001"
    assert [path.name for path in place.sweep_folder.iterdir()] == ["thesis"]


def test_a_file_where_the_folder_should_be_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "sweep"
    file.write_text("mine")
    with pytest.raises(ConfigError, match="STO001"):
        Store(file).check()
    assert file.read_text() == "mine"


def _result(**odd: Any) -> str:
    return json.dumps({"schema": "sglang_hydra.result/1", **result(), **odd})


@pytest.mark.parametrize(
    ("content", "id", "said"),
    [
        ('{"schema": "sglang_hydra.result/1", "st', "STO002", "cannot be read"),
        ("", "STO002", "cannot be read"),
        ("[]", "STO002", "holds no object"),
        ('{"schema": "sglang_hydra.result/0"}', "STO003", "'sglang_hydra.result/0'"),
        ('{"tokens": 3}', "STO003", "None"),
        ('{"schema": "sglang_hydra.result/1"}', "STO002", "state is missing"),
        (_result(reasons=3), "STO002", "reasons is 3"),
        ('{"schema": "sglang_hydra.result/1", "state": "x", "reasons": [], "measures": {}}', "STO002", "state is 'x'"),
        ('{"schema": "sglang_hydra.result/1", "measures": {"goodput": NaN}}', "STO002", "NaN is no number"),
        ("[" * 100_000, "STO002", "cannot be read"),
        (_result(measures={"output_throughput": "fast"}), "STO002", "measures.output_throughput is 'fast'"),
        (_result(measures={"ttft_ms": {"p50": 10**400}}), "STO002", "more than 400 digits"),
        (_result(measures={"itl_ms": 5}), "STO002", "measures.itl_ms is 5"),
        (_result(reasons=[1]), "STO002", "reasons is 1"),
        (_result(machine="here"), "STO002", "machine is 'here'"),
        (
            '{"schema": "sglang_hydra.result/1", "point_id": "b0", "state": "valid", "reasons": [], "measures": {}}',
            "STO002",
            "is of point b0",
        ),
    ],
)
def test_what_is_no_result_of_ours_is_said_and_kept(tmp_path: Path, content: str, id: str, said: str) -> None:
    store = Store(tmp_path)
    file = store.point(ID) / "result.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(ConfigError, match=said) as caught:
        store.state(ID)
    assert caught.value.findings[0].id == id
    assert str(file) in caught.value.findings[0].message
    assert not store.add_result(ID, result())
    assert file.read_text() == content


def test_an_older_sweep_is_not_misread(place: Place) -> None:
    place.sweep_folder.mkdir()
    old = '{"schema": "sglang_hydra.sweep/0"}'
    (place.sweep_folder / "sweep.json").write_text(old)
    with pytest.raises(ConfigError, match="STO003"):
        place.store.begin(place.plan())
    assert (place.sweep_folder / "sweep.json").read_text() == old


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "words is missing"),
        ({"words": "x", "shared": [], "points": {}, "servers": {}}, "words is 'x'"),
        ({"words": [], "shared": [], "points": [], "servers": {}}, "points is"),
        ({"words": [], "shared": [], "points": {}, "servers": 5}, "servers is 5"),
        ({"words": [], "shared": [], "points": {"a": 1}, "servers": {}}, "points.a is 1"),
        ({"words": [], "shared": [], "points": {"a": {}}, "servers": {}}, "points.a.server_id is missing"),
        ({"words": [1], "shared": [], "points": {}, "servers": {}}, "words is 1"),
        ({"words": [], "shared": [], "points": {}, "servers": {}, "refused": [1]}, "refused is 1"),
    ],
)
def test_a_sweep_of_another_shape_is_said_and_kept(place: Place, content: dict[str, Any], said: str) -> None:
    place.sweep_folder.mkdir()
    text = json.dumps({"schema": "sglang_hydra.sweep/1", **content})
    file = place.sweep_folder / "sweep.json"
    file.write_text(text)
    for act in (place.store.check, place.store.read_sweep, lambda: place.store.begin(place.plan())):
        with pytest.raises(ConfigError) as caught:
            act()
        (finding,) = caught.value.findings
        assert finding.id == "STO002"
        assert said in finding.message
    assert file.read_text() == text


def test_what_a_runner_killed_at_its_begin_left_is_no_obstacle(place: Place) -> None:
    (place.sweep_folder / "claims" / "runners").mkdir(parents=True)
    (place.sweep_folder / ".sweep.json.0a1b2c3d.part").write_text("{")
    place.store.begin(place.plan())
    assert len(place.store.read_sweep()["points"]) == 1


def test_a_sweep_has_what_makes_it_again(place: Place) -> None:
    sweep = place.plan("bench.concurrency=1,2", "chunked_prefill_size=512,-5")
    place.store.begin(sweep)
    record = place.store.read_sweep()
    must_follow(record, "sweep")
    assert tuple(record["words"]) == sweep.words
    assert set(record["points"]) == {point.point_id for point in sweep.points()}


def test_what_an_earlier_command_planned_stays(place: Place) -> None:
    first, second = place.plan("bench.concurrency=1,2"), place.plan("bench.concurrency=2,4")
    place.store.begin(first)
    place.store.begin(second)
    wanted = {point.point_id for sweep in (first, second) for point in sweep.points()}
    assert set(place.store.read_sweep()["points"]) == wanted
    assert len(wanted) == 3
