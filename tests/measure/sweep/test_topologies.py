"""Sweeps over how many servers stand behind a router: the real router, fake servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.commands import must_follow
from tests.measure.sweep.place import DEADLINE_S, Place, faultless
from tests.run.launch.processes import free_port, wait_until

# Its port for metrics is this process's own: the one that is drawn is found free by others, too, until it is taken.
ROUTER = (f"topology.router.python={sys.executable}", f"topology.router.prometheus_port={free_port()}")
PD = ("topology=pd", "topology.prefill.replicas=1,2", "topology.decode.replicas=1,2", *ROUTER)
THREE = "sweep.where='topology.prefill.replicas + topology.decode.replicas < 4'"


@pytest.mark.thorough
def test_the_number_of_prefill_and_decode_servers_is_an_axis(place: Place) -> None:
    printed = place.run(place.command(*PD, THREE))
    results = place.results()
    assert [faultless(record) for record in results.values()] == [True] * 3
    shapes = sorted(tuple(sorted(record["actual"]["servers"])) for record in results.values())
    assert shapes == [
        ("decode 0", "decode 1", "prefill 0"),
        ("decode 0", "prefill 0"),
        ("decode 0", "prefill 0", "prefill 1"),
    ]
    for record in results.values():
        must_follow(record, "result")
        assert {own["owner"] for own in record["actual"]["servers"].values()} == {"ours"}
    assert len({record["server_id"] for record in results.values()}) == 3
    assert len(place.starts()) >= 2 + 3 + 3, printed  # a port that another program took is tried again
    assert "SWP006" in printed
    assert wait_until(lambda: place.alive() == [], DEADLINE_S)
    report = place.run([sys.executable, "serve.py", "report", str(place.sweep_folder)])
    assert "sweep: 3 points" in report
    assert "topology.prefill.replicas=" in report


@pytest.mark.thorough
def test_a_topology_is_not_measured_twice(place: Place) -> None:
    words = ("topology=replicas", "replicas=1,2", *ROUTER)
    place.run(place.command(*words))
    assert len(place.starts()) == 3
    place.run(place.command(*words))
    assert len(place.starts()) == 3


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [{"start_fails": 9}, {"die_after": 1}])
def test_the_server_that_fails_is_named_and_nothing_is_left(place: Place, fault: dict[str, int]) -> None:
    place.fault = fault
    place.run(place.command("topology=replicas", "replicas=2", *ROUTER, "sweep.retries=0"), code=4)
    (failure,) = [json.loads(file.read_text()) for file in place.sweep_folder.glob("points/*/failed/*.json")]
    assert failure["findings"][0]["message"].startswith("replica ")
    assert wait_until(lambda: place.alive() == [], DEADLINE_S)


def test_without_the_router_nothing_is_started(place: Place, fake_python: Path) -> None:
    place.run(place.command("topology=replicas", "replicas=2", f"topology.router.python={fake_python}"), code=4)
    (failure, *_) = [json.loads(file.read_text()) for file in place.sweep_folder.glob("points/*/failed/*.json")]
    assert failure["findings"][0]["id"] == "TOP015"
    assert place.starts() == []
