"""Files that commit 7c37404 wrote are read, resumed and stopped by today's code; tests/data/made_by_first_build."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.facts.tiny import ensure_tiny
from sglang_hydra.planning.plan import READ
from sglang_hydra.planning.recorded.saved import read_plan
from sglang_hydra.run.launch.processes import name_of
from tests.commands import H200, Run, runner, valid
from tests.measure.bench.conftest import forgive_slowness
from tests.measure.sweep.place import Place, make_fake_python, place_in
from tests.plans import planned

MADE = Path(__file__).parents[1] / "data" / "made_by_first_build"
PLACE_OF_THEN = "/tmp/first_build"
"""Where the files were made; their paths begin with it."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.fixture(scope="module")
def fake_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def here(tmp_path: Path, fake_python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place for sweeps that run in this process, whose environment the servers inherit."""
    with place_in(tmp_path, fake_python) as place:
        for name, value in place.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        ensure_tiny(tmp_path).rename("tiny_model")
        forgive_slowness(monkeypatch)
        yield place


@pytest.fixture
def sweep_of_then(here: Place) -> Callable[[str], Path]:
    """Copies a sweep's folder, with the paths of this place in it."""

    def copy(name: str) -> Path:
        folder = shutil.copytree(MADE / name, here.folder / name)
        for file in (path for path in folder.rglob("*") if path.is_file()):
            words = file.read_text(encoding="utf-8").replace(f"{PLACE_OF_THEN}/bench/venv/bin/python", str(here.python))
            file.write_text(words.replace(PLACE_OF_THEN, str(here.folder)), encoding="utf-8")
        return folder

    return copy


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("plan", ("gpu=h200", "model=gpt_oss", "tp_size=4", "launch.ready_timeout=600")),
        ("lock", ("gpu=h100", "model=qwen3_8b", "chunked_prefill_size=4096")),
    ],
)
def test_a_plan_is_read_and_locks_the_same_server(name: str, overrides: tuple[str, ...]) -> None:
    saved = read_plan(MADE / f"{name}.json")
    assert saved.record["server_id"] == planned(*overrides).server_id
    again = planned(f"lock={MADE / name}.json")
    assert again.server_id == saved.record["server_id"]
    assert again.nodes.launch.ready_timeout == (600 if name == "plan" else 1800)


def test_a_plan_is_judged_and_exported(run: Run, tmp_path: Path) -> None:
    checked = run("check", str(MADE / "plan.json"))
    assert checked.code == 0, checked.out + checked.err
    exported = run("export", "docker", f"lock={MADE / 'plan.json'}")
    assert exported.code == 0, exported.err
    assert "--tp-size 4" in exported.out
    refused = run("plan", f"lock={MADE / 'lock.json'}", "chunked_prefill_size=2048")
    assert refused.code == 2
    assert "chunked_prefill_size" in refused.err


def states(run: Run, folder: Path) -> dict[str, Any]:
    printed = run("status", str(folder), "--json")
    assert printed.code == 0, printed.err
    record: dict[str, Any] = valid("sweep_status", printed.out)
    return record


def test_a_finished_sweep_is_shown_reported_and_not_run_again(
    here: Place, sweep_of_then: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    run = runner(capsys, monkeypatch)
    folder = sweep_of_then("finished_sweep")
    assert (states(run, folder)["total"], states(run, folder)["valid"]) == (2, 2)
    kept = {file: file.read_bytes() for file in folder.glob("points/*/result.json")}
    resumed = run("resume", str(folder))
    assert resumed.code == 0, resumed.err
    assert "to run 0 of 2 points" in " ".join(resumed.out.split() + resumed.err.split())
    assert here.starts() == []
    assert kept == {file: file.read_bytes() for file in folder.glob("points/*/result.json")}
    reported = run("report", str(folder))
    assert reported.code == 0, reported.err
    assert (folder / "report.html").exists()


def test_a_half_done_sweep_goes_on_with_what_is_open(
    here: Place, sweep_of_then: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    run = runner(capsys, monkeypatch)
    folder = sweep_of_then("half_done_sweep")
    before = states(run, folder)
    assert (before["total"], before["valid"], before["open"]) == (4, 1, 3)
    (done,) = folder.glob("points/*/result.json")
    measured = done.read_bytes()
    resumed = run("resume", str(folder))
    assert resumed.code == 0, resumed.err
    after = states(run, folder)
    assert (after["total"], after["valid"], after["open"]) == (4, 4, 0)
    assert done.read_bytes() == measured
    assert len(here.starts()) == 2
    assert len(list(folder.glob("points/*/result.json"))) == 4


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The detached server's file in a state folder, with a living process in the place of its supervisor."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "print(flush=True); import time; time.sleep(600)"])
    shutil.copytree(MADE / "run", tmp_path / "run")
    record = json.loads((MADE / "server.json").read_text().replace(PLACE_OF_THEN, str(tmp_path)))
    name = name_of(process.pid)
    assert name is not None
    record["process"] = asdict(name)
    file = tmp_path / "state" / "servers" / f"{record['name']}.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(record))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_detached_server_is_shown_and_stopped(
    server: subprocess.Popen[bytes], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_HYDRA_STATE_DIR", str(tmp_path / "state"))
    name = json.loads((MADE / "server.json").read_text())["name"]
    (shown,) = valid("status", run("status", "--json").out)["servers"]
    assert (shown["name"], shown["condition"]) == (name, "busy")  # no health page is behind it
    assert (shown["actual"]["same"], shown["actual"]["of"]) == (3, 3)
    assert "Load weight begin" in run("logs", name).out
    (stopped,) = valid("stop", run("stop", name, "--json").out)["servers"]
    assert stopped["name"] == name
    assert server.wait(60) != 0
    assert valid("status", run("status", "--json").out)["servers"] == []


def test_what_is_planned_today_locks_as_it_did(run: Run) -> None:
    """Every key that the first build wrote is still there, and its schema is one that is read."""
    then = json.loads((MADE / "lock.json").read_text())
    now = json.loads(run("plan", "--json", *H200).out)
    # The arguments of extra stand in the intent since the third schema; the word of another release was taken out.
    assert then.keys() - {"extra", "authority"} <= now.keys()
    assert (then["schema"], now["schema"]) == (READ[0], READ[-1])
