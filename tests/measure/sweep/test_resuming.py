"""``resume`` and ``status`` of a sweep: as somebody else does, from the folder alone."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.measure.sweep.runner import run
from tests.commands import must_follow
from tests.measure.sweep.place import DEADLINE_S, Place
from tests.run.launch.processes import wait_until


def verb(*words: str, code: int = 0) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        assert entry(words) == code, said.getvalue()
    return said.getvalue()


def status(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(verb("status", str(folder), "--json"))
    must_follow(record, "sweep_status")
    return record


def test_a_sweep_is_resumed_from_where_it_was_moved_to(here: Place) -> None:
    sweep = here.plan("bench.concurrency=1,2", "chunked_prefill_size=512,1024")
    here.store.begin(sweep)
    moved = here.folder / "moved to, with a space"
    here.sweep_folder.rename(moved)
    assert status(moved)["open"] == 4
    verb("resume", str(moved))
    assert status(moved)["valid"] == 4
    assert not here.sweep_folder.exists()
    starts = len(here.starts())
    said = " ".join(verb("resume", str(moved)).split())
    assert "to run 0 of 4 points: the others have been taken" in said
    assert len(here.starts()) == starts == 2


@pytest.mark.thorough
def test_what_failed_is_taken_again_on_request_only(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    here.fault = {"die_after": 1}
    monkeypatch.setenv("FAKE_SGLANG", here.env["FAKE_SGLANG"])
    sweep = here.plan("bench.concurrency=1,2")
    assert run(sweep) == 4
    here.fault = {}
    monkeypatch.setenv("FAKE_SGLANG", here.env["FAKE_SGLANG"])
    folder = str(here.sweep_folder)
    record = status(here.sweep_folder)
    assert (record["failed"], len(record["failures"])) == (2, 2)
    said = verb("status", folder)
    assert "0 of 2 points done (2 failed)" in said
    assert f"resume {folder} sweep.rerun=[failed]" in said.replace("\n", "")
    starts = len(here.starts())
    assert " 0 of 2 points: " in " ".join(verb("resume", folder, code=4).split())
    assert len(here.starts()) == starts
    assert " 2 on 1 server start " in " ".join(verb("resume", folder, "sweep.rerun=[failed]").split())
    assert status(here.sweep_folder)["valid"] == 2
    assert json.loads((here.sweep_folder / "sweep.json").read_text())["words"]


def test_further_words_beat_those_of_before(here: Place) -> None:
    run(here.plan("bench.concurrency=1,2"))
    verb("resume", str(here.sweep_folder), "bench.concurrency=2,4")
    record = status(here.sweep_folder)
    assert (record["total"], record["valid"]) == (3, 3)


def test_another_terminal_sees_who_runs_what(place: Place) -> None:
    """The second point takes longer than any test."""
    place.fault = {"decode_ms": 200}
    process = place.start(place.command("bench.output_len=2,7999"))
    assert wait_until(lambda: len(place.results()) == 1, DEADLINE_S)
    record = status(place.sweep_folder)
    assert (record["done"], record["open"]) == (1, 1)
    (running,) = record["running"]
    assert running["alive"]
    assert running["open"] == 1
    (result,) = place.results().values()  # a busy machine may make it invalid
    assert (record["best"] is not None) == (result["state"] == "valid")
    assert "runs, 1 point to go" in verb("status", str(place.sweep_folder))
    process.kill()
    process.communicate()
    record = status(place.sweep_folder)
    assert [item["alive"] for item in record["running"]] in ([False], [])
    assert "resume" in verb("status", str(place.sweep_folder))


def test_status_changes_nothing(here: Place) -> None:
    run(here.plan("bench.concurrency=1"))
    before = {path: path.stat().st_mtime_ns for path in here.sweep_folder.rglob("*")}
    status(here.sweep_folder)
    assert {path: path.stat().st_mtime_ns for path in here.sweep_folder.rglob("*")} == before


def test_a_folder_without_a_sweep_is_said(tmp_path: Path) -> None:
    assert "STO001" in verb("status", str(tmp_path), code=2)
    assert "STO001" in verb("resume", str(tmp_path), code=2)
    assert "STO001" in verb("resume", str(tmp_path / "none"), code=2)
    assert "STO005" in verb("resume", code=2)
    (tmp_path / "sweep.json").write_text('{"schema": "sglang_hydra.sweep/9"}')
    assert "STO003" in verb("status", str(tmp_path), code=2)
    assert "STO003" in verb("resume", str(tmp_path), code=2)
    assert os.listdir(tmp_path) == ["sweep.json"]


DAMAGE: dict[str, Any] = {
    "half a file": lambda text: text[: len(text) // 2],
    "nothing": lambda text: "",
    "bytes": lambda text: "\0\x01\udcff",
    "another type": lambda text: "[1]",
    "another shape": lambda text: json.dumps({**json.loads(text), "measures": 3}),
    "another point's": lambda text: json.dumps({**json.loads(text), "point_id": "0" * 16}),
    "no schema": lambda text: '{"tokens": 3}',
    "deep": lambda text: "[" * 100_000,
}


@pytest.mark.corpus
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_result_is_named_set_aside_and_taken_again_and_the_others_stay(here: Place, damage: str) -> None:
    sweep = here.plan("bench.concurrency=1,2", "chunked_prefill_size=512,1024")
    run(sweep)
    before = here.results()
    file = sorted(here.sweep_folder.glob("points/*/result.json"))[1]
    file.write_text(DAMAGE[damage](file.read_text()), encoding="utf-8", errors="surrogateescape")
    bad = file.read_bytes()
    record = status(here.sweep_folder)
    must_follow(record, "sweep_status")
    assert (record["done"], record["open"]) == (3, 1)
    assert str(file) in "".join(record["damaged"])
    assert f"damaged: {file}" in " ".join(verb("status", str(here.sweep_folder)).split())
    assert f"{file}" in verb("report", str(here.sweep_folder), "--json")
    assert file.read_bytes() == bad, "looking changes nothing"
    starts = len(here.starts())
    said = here.run([sys.executable, "serve.py", "resume", str(here.sweep_folder)])
    assert "result.json.damaged-1" in said
    assert len(here.starts()) == starts + 1
    assert file.with_name("result.json.damaged-1").read_bytes() == bad
    after = here.results()
    assert set(after) == set(before)
    assert {id: after[id] for id in before if id != file.parent.name} == {
        id: before[id] for id in before if id != file.parent.name
    }
    assert status(here.sweep_folder)["damaged"] == []


def test_a_result_of_another_release_is_not_set_aside(here: Place) -> None:
    run(here.plan("bench.concurrency=1"))
    (file,) = here.sweep_folder.glob("points/*/result.json")
    file.write_text('{"schema": "sglang_hydra.result/2"}')
    for words in (("status",), ("resume",)):
        assert "STO003" in verb(*words, str(here.sweep_folder), code=2)
    assert file.read_text() == '{"schema": "sglang_hydra.result/2"}'


def test_a_damaged_failure_or_search_stops_nothing(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    here.fault = {"start_fails": 9}
    monkeypatch.setenv("FAKE_SGLANG", here.env["FAKE_SGLANG"])
    words = ("bench.concurrency=ladder", "sweep.retries=0")
    assert run(here.plan(*words)) == 4
    (failed,) = here.sweep_folder.glob("points/*/failed/1.json")
    failed.write_text("{")
    assert status(here.sweep_folder)["open"] == 1
    here.fault = {}
    monkeypatch.setenv("FAKE_SGLANG", here.env["FAKE_SGLANG"])
    assert run(here.plan(*words)) == 0
    count = len(here.results())
    (search,) = here.sweep_folder.glob("searches/*.json")
    search.write_text("{")
    assert str(search) in "".join(status(here.sweep_folder)["damaged"])
    assert run(here.plan(*words)) == 0
    assert len(here.results()) == count
    assert json.loads(search.read_text())["over"]
    assert search.with_name(f"{search.name}.damaged-1").read_text() == "{"


def test_a_damaged_sweep_is_made_again_as_its_hint_says(here: Place) -> None:
    words = here.command("bench.concurrency=1,2")
    here.run(words)
    before, starts = here.results(), len(here.starts())
    file = here.sweep_folder / "sweep.json"
    file.write_text(file.read_text()[:200])
    for verb_ in ("status", "resume", "report"):
        said = " ".join(verb(verb_, str(here.sweep_folder), code=2).split())
        assert "STO002" in said
    assert f"mv {file} {file}.damaged" in said or verb_ == "report"
    file.rename(f"{file}.damaged")
    said = " ".join(verb("resume", str(here.sweep_folder), code=2).split())
    assert "makes it again from the points that are there" in said
    # Another command of the same sweep: what it does not plan itself is found by its results.
    here.run(here.command("bench.concurrency=3"))
    record = status(here.sweep_folder)
    assert (record["total"], record["done"]) == (3, 3)
    must_follow(json.loads(file.read_text()), "sweep")
    after = here.results()
    assert {id: after[id] for id in before} == before
    assert len(here.starts()) == starts + 1


KEYS = [
    ("api_key=sk-typed", "SGLANG_HYDRA_API_KEY", []),
    ("api_key=${oc.env:MY_KEY}", "SGLANG_HYDRA_API_KEY", []),
    ("api_key=${oc.env:MY_KEY}", "MY_KEY", ["--allow-env", "MY_KEY"]),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("word", "variable", "flags"), KEYS)
def test_resume_asks_for_the_variable_that_the_page_names(
    here: Place, word: str, variable: str, flags: list[str]
) -> None:
    here.fault = {"start_fails": 1}
    here.run(here.command("bench.concurrency=1", word), 4, MY_KEY="sk-typed")
    resume = [sys.executable, "serve.py", "resume", str(here.sweep_folder), "sweep.rerun=[failed]", *flags]
    asked = " ".join(here.run(resume, 2).split())
    assert "STO007" in asked
    assert "SGLANG_HYDRA_API_KEY must be set" in asked
    assert f"export {variable}=..." in asked
    here.run(resume, 0, **{variable: "sk-typed"})
    assert len(here.results()) == 1


def test_a_claim_of_another_machine_is_shown_as_unknown(here: Place) -> None:
    sweep = here.plan("bench.concurrency=1")
    here.store.begin(sweep)
    server = next(sweep.points()).server_id
    with Claims(here.sweep_folder / "claims") as claims:
        claims.take(f"servers/{server}")
        file = here.sweep_folder / "claims" / "servers" / server / "1"
        content = json.loads(file.read_text())
        content["process"]["host"] = "elsewhere"
        file.write_text(json.dumps(content))
        (running,) = status(here.sweep_folder)["running"]
        assert running["alive"] is None
        assert "runs elsewhere, or was killed there" in verb("status", str(here.sweep_folder))


def test_bench_without_its_packages_says_what_to_install(
    here: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(here.sweep_folder, ignore_errors=True)
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in [
        name
        for name in sys.modules
        if name.startswith(("sglang_hydra.measure.sweep.runner", "sglang_hydra.measure.bench"))
    ]:
        if name != "sglang_hydra.compose.settings.bench":
            monkeypatch.delitem(sys.modules, name)
    words = here.command("bench.concurrency=1")[2:]
    said = verb(*words, code=3)
    assert "RNR007" in said
    assert "pip install 'sglang-hydra[bench]'" in said
    assert not here.sweep_folder.exists()
