"""Is the server ours? What answers in its place, or is not what was planned, is named and never measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.measure.sweep.points import Sweep
from sglang_hydra.measure.sweep.runner import run
from sglang_hydra.text.json_types import plain
from tests.commands import must_follow
from tests.measure.sweep.place import DEADLINE_S, Place
from tests.run.launch.processes import wait_until

THIEF = Path(__file__).parents[2] / "run" / "launch" / "thief.py"


def honest(sweep: Sweep) -> dict[str, Any]:
    """What a server of the sweep says of itself, beside what it was passed."""
    plan = sweep.source.plan(sweep.groups[0].requests)
    return {**{name: plain(value) for name, value in plan.values.items()}, "version": "0.5.2"}


def failures(place: Place) -> list[dict[str, Any]]:
    found = [json.loads(file.read_text()) for file in sorted(place.sweep_folder.glob("points/*/failed/*.json"))]
    for record in found:
        must_follow(record, "failure")
    return found


def test_a_server_that_says_what_was_planned_is_measured_and_the_result_says_so(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = here.plan("chunked_prefill_size=512,1024", "tp_size=1")
    here.fault = {"info": honest(sweep)}
    monkeypatch.setenv("FAKE_SGLANG", here.env["FAKE_SGLANG"])
    assert run(sweep) == 0, failures(here)
    for record in here.results().values():
        must_follow(record, "result")
        seen = record["actual"]
        assert (seen["owner"], seen["version"], seen["same"], seen["of"]) == ("ours", "0.5.2", 210, 210)
        assert seen["differences"] == []


LIES: dict[str, dict[str, Any]] = {
    "another model": {"model_path": "other/model", "served_model_name": "other/model"},
    "tp_size": {"tp_size": 8},
    "max_running_requests": {"max_running_requests": 7},
    "a value that is slightly another": {"chunked_prefill_size": 513},
    "a key": {"api_key": "sk-1"},
    "another port": {"port": 1},
}


@pytest.mark.corpus
@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_says_something_else_is_not_measured_and_both_values_are_told(
    here: Place, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    sweep = here.plan("chunked_prefill_size=512")
    here.fault = {"info": honest(sweep), "lie": LIES[lie]}
    monkeypatch.setenv("FAKE_SGLANG", here.env["FAKE_SGLANG"])
    assert run(sweep) == 4
    assert here.results() == {}
    (failure,) = failures(here)
    assert (failure["kind"], failure["retryable"]) == ("not_as_planned", False)
    (finding,) = failure["findings"]
    assert finding["id"] == "ACT005"
    planned = honest(sweep)
    for name, value in LIES[lie].items():
        shown = "***" if name == "api_key" else str(value)
        assert re.search(rf"{name}: planned .*, the server has [\"']?{re.escape(shown)}", finding["message"])
        if name not in ("port", "api_key") and planned[name] is not None:
            assert f"{name}: planned {planned[name]}" in finding["message"]


def test_with_force_a_difference_is_kept_with_the_result(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = here.plan("launch.force=true")
    here.fault = {"info": honest(sweep), "lie": {"tp_size": 8}}
    monkeypatch.setenv("FAKE_SGLANG", here.env["FAKE_SGLANG"])
    assert run(sweep) == 0
    (record,) = here.results().values()
    assert [(item["field"], item["actual"]) for item in record["actual"]["differences"]] == [("tp_size", 8)]


class Thieves(threading.Thread):
    """Takes the port of each server that starts, before it could listen, and answers as it is told to."""

    def __init__(self, place: Place, info: Path, status: int) -> None:
        super().__init__(daemon=True)
        self._place, self._words, self._over = place, (str(status), str(info)), threading.Event()
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        while not self._over.wait(0.02):
            for line in self._place.starts()[len(self.processes) :]:
                port = re.search(r"--port (\d+)", line)
                if port is None:
                    break  # the line is being written
                self.processes.append(subprocess.Popen([sys.executable, str(THIEF), port[1], *self._words]))

    def end(self) -> None:
        self._over.set()
        self.join()
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def info_file(tmp_path: Path) -> Iterator[Path]:
    return tmp_path / "info.json"


@pytest.mark.thorough
@pytest.mark.parametrize("status", [200, 302, 503])
def test_a_thief_of_the_port_is_named_and_the_next_port_is_tried(
    here: Place, monkeypatch: pytest.MonkeyPatch, info_file: Path, status: int
) -> None:
    """It even says of itself exactly what was planned."""
    sweep = here.plan()
    info_file.write_text(json.dumps(honest(sweep)))
    here.fault = {"mute": True}
    monkeypatch.setenv("FAKE_SGLANG", here.env["FAKE_SGLANG"])
    thieves = Thieves(here, info_file, status)
    thieves.start()
    try:
        assert run(sweep) == 4
    finally:
        thieves.end()
    assert here.results() == {}
    found = failures(here)
    assert [(record["kind"], record["final"]) for record in found] == [("port_in_use", False), ("port_in_use", True)]
    for record, thief in zip(found, thieves.processes, strict=True):
        assert f"is answered by another process: process {thief.pid} (" in record["findings"][0]["message"]
    assert wait_until(lambda: here.alive() == [], DEADLINE_S)
