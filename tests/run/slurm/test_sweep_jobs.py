"""Sweeps on a real Slurm: a job is one server with its points, and what becomes of the job loses nothing."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.measure.sweep.place import Place, faultless, make_fake_python, place_in
from tests.run.launch.processes import wait_until
from tests.run.slurm.cluster import Cluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DEADLINE_S = 240.0
AXES = ("chunked_prefill_size=512,1024", "bench.concurrency=1,2,3,4,5,6", "bench.num_prompts=12")
SLURM = ("hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=30")
POINTS = 12


@pytest.fixture(scope="module")
def bench_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("fake-sglang"))


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path, bench_python: Path) -> Iterator[Place]:
    with place_in(tmp_path, bench_python) as place:
        place.fault = {"decode_ms": 400}
        yield place


def spans(place: Place) -> list[tuple[str, str]]:
    """From when to when each server was measured."""
    found: dict[str, list[str]] = {}
    for record in place.results().values():
        found.setdefault(record["server_id"], []).extend((record["started"], record["ended"]))
    return sorted((min(times), max(times)) for times in found.values())


def whole(place: Place) -> bool:
    """Every point has one valid result, and no process is left."""
    assert [faultless(record) for record in place.results().values()] == [True] * POINTS
    return wait_until(lambda: place.alive() == [], DEADLINE_S)


def tasks(cluster: Cluster, state: str = "RUNNING") -> list[str]:
    return cluster.ask("squeue", "--noheader", "--array", "--states", state, "-o", "%i").split()


def test_two_servers_are_measured_at_once(cluster: Cluster, place: Place) -> None:
    place.run(place.command(*AXES, *SLURM))
    assert whole(place)
    assert len(place.starts()) == 2
    (_, end), (start, _) = spans(place)
    assert start < end
    place.run(place.command(*AXES, *SLURM))
    assert len(place.starts()) == 2


def test_no_more_jobs_than_asked_run_at_a_time(cluster: Cluster, place: Place) -> None:
    place.run(place.command(*AXES, *SLURM, "sweep.max_jobs=1"))
    assert whole(place)
    (_, end), (start, _) = spans(place)
    assert end <= start


def test_a_cancelled_job_is_submitted_again(cluster: Cluster, place: Place) -> None:
    process = place.start(place.command(*AXES, *SLURM))
    assert wait_until(lambda: len(place.results()) >= 2, DEADLINE_S)
    cluster.ask("scancel", tasks(cluster)[0])
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    assert whole(place)
    assert len(place.starts()) == 3


def test_a_preempted_job_goes_on_when_it_has_nodes_again(cluster: Cluster, place: Place) -> None:
    process = place.start(place.command(*AXES, *SLURM))
    assert wait_until(lambda: len(place.results()) >= 2, DEADLINE_S)
    before = place.results()
    script = "--wrap=sleep 5"
    cluster.ask("sbatch", "-p", "urgent", "-N", str(cluster.nodes), "--exclusive", "-o", "/dev/null", script)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    assert whole(place)
    after = place.results()
    assert {id: after[id] for id in before} == before
    restarted = re.findall(r"Restarts=(\d+)", cluster.ask("scontrol", "show", "job"))
    assert any(int(count) for count in restarted)


def test_a_node_that_goes_down_loses_no_point(cluster: Cluster, place: Place) -> None:
    process = place.start(place.command(*AXES, *SLURM))
    assert wait_until(lambda: len(place.results()) >= 2, DEADLINE_S)
    node = cluster.ask("squeue", "--noheader", "-j", tasks(cluster)[0], "-o", "%N").strip()
    cluster.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    assert whole(place)


def test_a_job_ends_before_its_walltime_and_hands_back_the_rest(cluster: Cluster, place: Place) -> None:
    place.fault = {"decode_ms": 1200}
    short = ("hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=1", "hydra.launcher.signal_delay_s=5")
    began = time.monotonic()
    place.run(place.command(*AXES, *short))
    assert whole(place)
    assert time.monotonic() - began > 30
    assert len(place.starts()) > 2
    assert not list(place.sweep_folder.glob("points/*/failed/*"))
    ended = re.findall(r"JobState=(\w+)", cluster.ask("scontrol", "show", "job"))
    assert "TIMEOUT" not in ended


@pytest.mark.parametrize(
    "words",
    [
        ("tp_size=2", "nnodes=2", "chunked_prefill_size=512,1024"),
        (
            *("topology=pd", "topology.prefill.nodes=1", "topology.decode.nodes=1", "topology.prefill.replicas=1,2"),
            f"topology.router.python={sys.executable}",
        ),
    ],
    ids=["a server on two nodes", "prefill and decode on a node each"],
)
def test_points_on_several_nodes_are_taken_in_jobs_with_as_many(
    cluster: Cluster, place: Place, words: tuple[str, ...]
) -> None:
    place.fault = {"decode_ms": 5}
    place.run(place.command(*words, *SLURM, "sweep.max_jobs=1"))
    assert [faultless(record) for record in place.results().values()] == [True, True]
    assert "NumNodes=2" in cluster.ask("scontrol", "show", "job")
    accounts = [json.loads(file.read_text()) for file in place.sweep_folder.glob("servers/*/job.json")]
    assert {len(account["nodes"]) for account in accounts} == {2}
    assert wait_until(lambda: place.alive() == [] and cluster.idle() == cluster.nodes, DEADLINE_S)


def test_stopping_the_command_cancels_its_jobs(cluster: Cluster, place: Place) -> None:
    process = place.start(place.command(*AXES, *SLURM, "sweep.max_jobs=1"))
    assert wait_until(lambda: len(place.results()) >= 1, DEADLINE_S)
    process.terminate()
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, said
    assert wait_until(lambda: not cluster.ask("squeue", "--noheader"), DEADLINE_S)
    assert wait_until(lambda: place.alive() == [], DEADLINE_S)


def test_jobs_that_slurm_refuses_are_said(cluster: Cluster, place: Place) -> None:
    said = place.run(place.command(*AXES, *SLURM, "hydra.launcher.partition=none"), code=3)
    assert "RNR006" in said
    assert "invalid partition" in said
    assert "Traceback" not in said
