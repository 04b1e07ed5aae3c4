"""A sweep carried by Hydra's launchers: each job one server, whatever becomes of the job."""

from __future__ import annotations

import itertools
import os
import re
import signal

import psutil
import pytest

from tests.launch.processes import wait_until
from tests.sweep.place import DEADLINE_S, Place

AXES = ("chunked_prefill_size=512,1024", "bench.concurrency=1,2")
LAUNCHERS = ("basic", "joblib", "submitit_local")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_carries_a_sweep(place: Place, launcher: str) -> None:
    words = place.command(*AXES, f"hydra/launcher={launcher}")
    said = place.run(words)
    assert len(place.starts()) == 2
    assert {record["state"] for record in place.results().values()} == {"valid"}
    assert len(place.results()) == 4
    assert "HTTP Request" not in said
    assert place.alive() == []
    place.run(words)
    assert len(place.starts()) == 2


def test_no_more_jobs_than_asked_run_at_a_time(place: Place) -> None:
    """With one place for three jobs, each server starts after the one before has ended."""
    words = place.command("chunked_prefill_size=512,1024,2048", "bench.concurrency=1", "sweep.max_jobs=1")
    place.run([*words, "hydra/launcher=submitit_local"])
    plans = sorted(place.sweep_folder.glob("servers/*/plan.json"), key=lambda file: file.stat().st_mtime_ns)
    results = sorted(place.results().values(), key=lambda record: str(record["started"]))
    assert [record["server_id"] for record in results] == [file.parent.name for file in plans]
    assert all(one["ended"] <= other["started"] for one, other in itertools.pairwise(results))


@pytest.mark.parametrize("launcher", ["joblib", pytest.param("submitit_local", marks=pytest.mark.long)])
def test_a_job_that_is_killed_is_launched_again(place: Place, launcher: str) -> None:
    place.fault = {"decode_ms": 50}
    process = place.start(place.command(*AXES, f"hydra/launcher={launcher}", "bench.num_prompts=8"))
    assert wait_until(lambda: len(place.starts()) == 2, DEADLINE_S)
    _job_of(place).kill()
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    assert len(place.results()) == 4
    assert wait_until(lambda: place.alive() == [], DEADLINE_S)


@pytest.mark.parametrize("launcher", LAUNCHERS[1:])
def test_stopping_the_command_stops_its_jobs(place: Place, launcher: str) -> None:
    place.fault = {"decode_ms": 500}
    process = place.start(place.command(*AXES, f"hydra/launcher={launcher}", "bench.num_prompts=100"))
    assert wait_until(lambda: len(place.starts()) == 2, DEADLINE_S)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, said
    assert wait_until(lambda: place.alive() == [], DEADLINE_S), [item.cmdline() for item in place.alive()]
    assert place.results() == {}


def test_nothing_that_a_job_carries_holds_the_key(place: Place) -> None:
    key = "sk-very-secret-4711"
    place.run([*place.command(*AXES, "hydra/launcher=submitit_local"), f"api_key={key}"])
    assert len(place.results()) == 4
    for file in place.sweep_folder.rglob("*"):
        assert not file.is_file() or key.encode() not in file.read_bytes(), file


def _job_of(place: Place) -> psutil.Process:
    """The process that started one of the servers: the parent of its guard."""
    line = place.starts()[0]
    pid = int(re.match(r"\d+", line)[0])  # type: ignore[index]
    guard = psutil.Process(pid).parent()
    assert guard is not None
    job = guard.parent()
    assert job is not None
    assert job.pid != os.getpid()
    return job
