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

import jsonschema
import pytest

from sglang_hydra.cli import entry
from sglang_hydra.schemas import schema_of
from sglang_hydra.sweep.claims import Claims
from sglang_hydra.sweep.runner import run
from tests.launch.processes import wait_until
from tests.sweep.place import DEADLINE_S, Place


def verb(*words: str, code: int = 0) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        assert entry(words) == code, said.getvalue()
    return said.getvalue()


def status(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(verb("status", str(folder), "--json"))
    jsonschema.validate(record, schema_of("sweep_status"))
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
    assert record["best"]["words"]
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


def test_a_broken_result_is_said_and_kept(here: Place) -> None:
    sweep = here.plan("bench.concurrency=1")
    run(sweep)
    (file,) = here.sweep_folder.glob("points/*/result.json")
    file.write_text(file.read_text()[:100])
    for words in (("status",), ("resume",)):
        assert "STO002" in verb(*words, str(here.sweep_folder), code=2)
    assert len(file.read_text()) == 100


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
    for name in [name for name in sys.modules if name.startswith(("sglang_hydra.sweep.runner", "sglang_hydra.bench"))]:
        if name != "sglang_hydra.bench.settings":
            monkeypatch.delitem(sys.modules, name)
    words = here.command("bench.concurrency=1")[2:]
    said = verb(*words, code=3)
    assert "RNR007" in said
    assert "pip install 'sglang-hydra[bench]'" in said
    assert not here.sweep_folder.exists()
