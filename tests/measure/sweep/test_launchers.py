"""A sweep carried by Hydra's launchers: each job one server, whatever becomes of the job."""

from __future__ import annotations

import itertools
import os
import re
import signal

import psutil
import pytest

from tests.measure.sweep.place import DEADLINE_S, Place, faultless
from tests.run.launch.processes import wait_until

AXES = ("chunked_prefill_size=512,1024", "bench.concurrency=1,2")
LAUNCHERS = ("basic", "joblib", "submitit_local")


def at_once(launcher: str) -> list[str]:
    """Both jobs at a time, also where there is one core: joblib would then run them here, one after the other."""
    return [f"hydra/launcher={launcher}", *(["hydra.launcher.n_jobs=2"] if launcher == "joblib" else [])]


@pytest.mark.corpus
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_carries_a_sweep(place: Place, launcher: str) -> None:
    words = place.command(*AXES, f"hydra/launcher={launcher}")
    said = place.run(words)
    assert len(place.starts()) == 2
    assert all(faultless(record) for record in place.results().values())
    assert len(place.results()) == 4
    assert "HTTP Request" not in said
    assert len(re.findall(r"^\d/4 (?:in)?valid ", said, re.MULTILINE)) == 4, said
    assert place.alive() == []
    place.run(words)
    assert len(place.starts()) == 2


@pytest.mark.thorough
def test_no_more_jobs_than_asked_run_at_a_time(place: Place) -> None:
    """With one place for three jobs, each server starts after the one before has ended."""
    words = place.command("chunked_prefill_size=512,1024,2048", "bench.concurrency=1", "sweep.max_jobs=1")
    place.run([*words, "hydra/launcher=submitit_local"])
    plans = sorted(place.sweep_folder.glob("servers/*/plan.json"), key=lambda file: file.stat().st_mtime_ns)
    results = sorted(place.results().values(), key=lambda record: str(record["started"]))
    assert [record["server_id"] for record in results] == [file.parent.name for file in plans]
    assert all(one["ended"] <= other["started"] for one, other in itertools.pairwise(results))


@pytest.mark.thorough
def test_a_ladder_elsewhere_tells_of_its_rungs(place: Place) -> None:
    place.fault = {"decode_ms": 20}
    said = place.run(
        place.command("bench.concurrency=ladder", "sweep.ladder_gain=100", "hydra/launcher=submitit_local")
    )
    rungs = re.findall(r"^./1 (?:in)?valid bench.concurrency=([12]): ", said, re.MULTILINE)
    assert "1" in rungs, said


@pytest.mark.thorough
@pytest.mark.parametrize("launcher", LAUNCHERS[1:])
def test_a_failure_is_told_when_it_happens_and_ends_all_where_that_is_asked(place: Place, launcher: str) -> None:
    """One place for three servers: after the first failure no other is started."""
    place.fault = {"die_after": 1}
    words = place.command("chunked_prefill_size=512,1024,2048", "sweep.max_jobs=1")
    said = place.run([*words, f"hydra/launcher={launcher}", "sweep.fail_fast=true", "sweep.retries=0"], code=4)
    told = re.findall(r"^1/3 failed .*exit code 9", said, re.MULTILINE)
    assert len(told) == 1, said
    assert len(place.starts()) == 1
    place.fault = {}
    place.run([*words, "hydra/launcher=joblib", "sweep.fail_fast=true"], code=4)
    assert len(place.results()) == 2, "an old failure is no reason to end"


@pytest.mark.thorough
@pytest.mark.parametrize("launcher", ["joblib", pytest.param("submitit_local", marks=pytest.mark.long)])
def test_a_job_that_is_killed_is_launched_again(place: Place, launcher: str) -> None:
    place.fault = {"decode_ms": 100}
    process = place.start(place.command(*AXES, *at_once(launcher), "bench.num_prompts=8"))
    assert wait_until(lambda: len(place.starts()) == 2, DEADLINE_S)
    _job_of(place).kill()
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    assert len(place.results()) == 4
    assert wait_until(lambda: place.alive() == [], DEADLINE_S)


@pytest.mark.thorough
@pytest.mark.parametrize("launcher", LAUNCHERS[1:])
def test_stopping_the_command_stops_its_jobs(place: Place, launcher: str) -> None:
    place.fault = {"decode_ms": 500}
    process = place.start(place.command(*AXES, *at_once(launcher), "bench.num_prompts=100"))
    assert wait_until(lambda: len(place.starts()) == 2, DEADLINE_S)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, said
    assert wait_until(lambda: place.alive() == [], DEADLINE_S), [item.cmdline() for item in place.alive()]
    assert place.results() == {}


@pytest.mark.thorough
def test_nothing_that_a_job_carries_holds_the_key(place: Place) -> None:
    key = "sk-very-secret-4711"
    place.run([*place.command(*AXES, "hydra/launcher=submitit_local"), f"api_key={key}"])
    assert len(place.results()) == 4
    for file in place.sweep_folder.rglob("*"):
        assert not file.is_file() or key.encode() not in file.read_bytes(), file


def _job_of(place: Place) -> psutil.Process:
    """The process that started the last of the servers: the parent of its guard, which is two processes."""
    line = place.starts()[-1]
    server = psutil.Process(int(re.match(r"\d+", line)[0]))  # type: ignore[index]
    job = server.parents()[2]
    assert job.pid != os.getpid()
    return job
