"""Sweeps on fake servers: each server starts once, nothing is run twice, and no failure is lost."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.measure.sweep import server_points
from sglang_hydra.measure.sweep.points import Sweep
from sglang_hydra.measure.sweep.runner import run
from sglang_hydra.measure.sweep.store import Store
from sglang_hydra.text.errors import ConfigError, MachineError
from tests.commands import must_follow
from tests.measure.sweep.place import DEADLINE_S, Place
from tests.run.launch.processes import wait_until

AXES = ("chunked_prefill_size=512,1024", "bench.concurrency=1,2", "bench.output_len=2,3")


def with_fault(place: Place, monkeypatch: pytest.MonkeyPatch, **fault: Any) -> None:
    place.fault = fault
    monkeypatch.setenv("FAKE_SGLANG", place.env["FAKE_SGLANG"])


@pytest.mark.corpus
@pytest.mark.parametrize("order", list(itertools.permutations(AXES))[::2], ids=" ".join)
def test_each_server_starts_once_in_any_order_of_the_words(here: Place, order: tuple[str, ...]) -> None:
    sweep = here.plan(*order)
    assert run(sweep) == 0
    assert len(here.starts()) == len({point.server_id for point in sweep.points()}) == 2
    assert here.states(sweep) == {"done": 8}
    for record in here.results().values():
        must_follow(record, "result")
        assert record["state"] == "valid"
    assert run(here.plan(*reversed(order))) == 0
    assert len(here.starts()) == 2


def test_serve_measures_a_sweep_as_bench_does(here: Place) -> None:
    said = here.run(here.command("bench.concurrency=1,2", verb=("-m",)))
    assert "to run      2  on 1 server start" in said
    assert len(here.starts()) == 1
    assert len(here.results()) == 2


def test_what_is_added_runs_alone(here: Place) -> None:
    run(here.plan("bench.concurrency=1,2"))
    before = here.results()
    run(here.plan("bench.concurrency=1,2,4"))
    after = here.results()
    assert len(after) == 3
    assert {id: after[id] for id in before} == before
    assert len(here.starts()) == 2


@pytest.mark.parametrize(("killed", "code"), [(1, 0), (2, 4)])
def test_a_server_that_is_killed_while_it_starts_is_tried_once_more(
    here: Place, monkeypatch: pytest.MonkeyPatch, killed: int, code: int
) -> None:
    with_fault(here, monkeypatch, start_killed=killed)
    assert run(here.plan("bench.concurrency=1,2")) == code
    assert len(here.starts()) == 2
    assert len(here.results()) == (2 if code == 0 else 0)


def test_a_server_that_does_not_start_is_tried_again_if_that_can_help(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says that memory is short, which is the same next time."""
    with_fault(here, monkeypatch, start_fails=99)
    sweep = here.plan("bench.concurrency=1,2")
    assert run(sweep) == 4
    assert here.states(sweep) == {"failed": 2}
    for point in sweep.points():
        (failure,) = here.store.failures(point.point_id)
        must_follow(failure, "failure")
        assert failure["kind"] not in ("unknown", "client")
        assert not failure["retryable"]
        assert any("Not enough memory" in line for line in failure["log_tail"])
    assert len(here.starts()) == 1


def test_a_server_that_dies_fails_its_point_and_comes_again(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies at every sixth request, so at the second point of each start."""
    with_fault(here, monkeypatch, die_after=6)
    sweep = here.plan("bench.concurrency=1,2,3")
    assert run(sweep) == 0
    assert here.states(sweep) == {"done": 3}
    assert len(here.starts()) == 3
    failed = [list(here.store.failures(point.point_id)) for point in sweep.points()]
    assert [len(failures) for failures in failed] == [0, 1, 1]
    assert [failure["final"] for failures in failed for failure in failures] == [False, False]


def test_a_server_that_dies_before_its_cache_is_empty_is_not_waited_for(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never empties its cache; the time that is allowed for it is longer than the test."""
    with_fault(here, monkeypatch, deaf=True)
    sweep = here.plan("bench.concurrency=1", "bench.timeout=3600", retries=0)
    began = []

    def kill() -> None:
        assert wait_until(lambda: len(here.starts()) == 1 and _listens(here), DEADLINE_S)
        began.append(int(here.starts()[0].split()[0]))
        os.kill(began[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    assert run(sweep) == 4
    thread.join()
    (failure,) = here.store.failures(next(sweep.points()).point_id)
    assert failure["kind"] not in ("client", "not_idle")


def _listens(place: Place) -> bool:
    """Whether the server has been asked to empty its cache: it is ready by then."""
    import httpx

    words = place.starts()[0].split()
    with contextlib.suppress(httpx.HTTPError):
        url = f"http://127.0.0.1:{words[words.index('--port') + 1]}"
        flushes = httpx.get(f"{url}/requests", trust_env=False).json()["flushes"]
        return bool(flushes)
    return False


@pytest.mark.thorough
def test_retries_are_bounded_and_rerun_takes_failed_points(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault(here, monkeypatch, die_after=1)
    sweep = here.plan("bench.concurrency=1,2", retries=2)
    assert run(sweep) == 4
    assert here.states(sweep) == {"failed": 2}
    assert len(here.starts()) == 6
    assert [failure["final"] for failure in here.store.failures(next(sweep.points()).point_id)] == [False, False, True]
    assert run(sweep) == 4
    assert len(here.starts()) == 6, "failed points are not taken again unless asked"
    with_fault(here, monkeypatch)
    assert run(here.plan("bench.concurrency=1,2", rerun=["failed"])) == 0
    assert here.states(sweep) == {"done": 2}
    assert (here.store.point(next(sweep.points()).point_id) / "superseded" / "failed-1" / "3.json").is_file()


def test_invalid_points_are_taken_again_on_request(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault(here, monkeypatch, short=True)
    sweep = here.plan("bench.concurrency=1,2")
    assert run(sweep) == 0
    assert {record["state"] for record in here.results().values()} == {"invalid"}
    with_fault(here, monkeypatch)
    assert run(here.plan("bench.concurrency=1,2", rerun=["invalid"])) == 0
    assert {record["state"] for record in here.results().values()} == {"valid"}


def test_a_port_that_was_taken_meanwhile_is_another_the_next_time(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:

    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1]])
        free = server_points.free_port
        monkeypatch.setattr(server_points, "free_port", lambda: next(ports, None) or free())
        sweep = here.plan("bench.concurrency=1,2")
        assert run(sweep) == 0
    assert here.states(sweep) == {"done": 2}
    failures = [list(here.store.failures(point.point_id)) for point in sweep.points()]
    assert [[(one["kind"], one["final"]) for one in failed] for failed in failures] == [[("not_here", False)]] * 2
    assert len(here.starts()) == 1


def test_a_ladder_with_a_rung_that_failed_is_climbed_on_from_there(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fault(here, monkeypatch, die_after=6)
    words = ("bench.concurrency=ladder",)
    sweep = here.plan(*words, ladder_gain=-1.0, retries=0)
    assert run(sweep) == 0  # the search has ended, at the rung that failed
    tried = {record["workload"]["concurrency"] for record in here.results().values()}
    assert tried == {1}
    with_fault(here, monkeypatch, decode_ms=40, reject_above=3)  # 4 requests overlap
    assert run(here.plan(*words, ladder_gain=-1.0)) == 0
    assert len(here.results()) == 1, "nothing is taken again unless asked"
    assert run(here.plan(*words, ladder_gain=-1.0, rerun=["failed"])) == 0
    states = {record["workload"]["concurrency"]: record["state"] for record in here.results().values()}
    assert states == {1: "valid", 2: "valid", 4: "invalid"}


def test_fail_fast_ends_the_sweep_at_the_first_failure(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault(here, monkeypatch, die_after=1)
    sweep = here.plan("bench.concurrency=1,2", "chunked_prefill_size=512,1024", fail_fast=True, retries=0)
    assert run(sweep) == 4
    assert here.states(sweep) == {"failed": 1, "open": 3}
    assert len(here.starts()) == 1


def test_what_is_tried_again_ends_no_sweep(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server dies at its seventh request; on a new one the same point can be taken."""
    with_fault(here, monkeypatch, die_after=6)
    sweep = here.plan("bench.concurrency=1,2", "chunked_prefill_size=512,1024", fail_fast=True, retries=1)
    assert run(sweep) == 0
    assert here.states(sweep) == {"done": 4}
    assert len(here.starts()) == 4


def test_failures_are_told_when_they_happen(
    here: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with_fault(here, monkeypatch, die_after=6)
    run(here.plan("bench.concurrency=1,2"))
    said = capfd.readouterr().err
    assert "failed bench.concurrency=2: " in said
    assert "exit code 9" in said
    assert "(it is tried again)" in said
    assert said.index("failed bench.concurrency=2") < said.index("2/2 valid bench.concurrency=2")


def test_a_client_that_cannot_measure_leaves_the_server_to_the_others(here: Place, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a"}')
    sweep = here.plan("bench.dataset=file", f"bench.path={prompts}", "bench.concurrency=1,2,3")
    prompts.unlink()
    assert run(sweep) == 4
    assert here.states(sweep) == {"failed": 3}
    assert len(here.starts()) == 1


@pytest.mark.thorough
def test_two_runners_on_one_folder_never_run_a_point_twice(place: Place) -> None:
    words = place.command("chunked_prefill_size=512,1024,2048", "bench.concurrency=1,2,3,4")
    processes = [place.start(words) for _ in range(2)]
    said = [process.communicate(timeout=DEADLINE_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert len(place.starts()) == 3
    lines = [line for text in said for line in text.splitlines() if re.match(r"\d+/12 (in)?valid ", line)]
    assert len(lines) == len(place.results()) == 12
    assert place.alive() == []


@pytest.mark.thorough
def test_a_killed_runner_leaves_no_server_and_is_resumed(place: Place) -> None:
    place.fault = {"decode_ms": 400}
    words = place.command("chunked_prefill_size=512,1024", "bench.concurrency=1,2,3")
    process = place.start(words)
    assert wait_until(lambda: len(place.results()) >= 2, DEADLINE_S)
    process.kill()
    process.communicate()
    assert wait_until(lambda: place.alive() == [], DEADLINE_S)
    before = place.results()
    assert 2 <= len(before) < 6
    place.fault = {}
    place.run([sys.executable, "serve.py", "resume", str(place.sweep_folder)])
    after = place.results()
    assert len(after) == 6
    assert {id: after[id] for id in before} == before


def test_a_paused_runner_publishes_nothing_once_it_was_taken_over(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = here.plan("bench.concurrency=1,2")
    (group,) = sweep.groups

    def taken_over(store: Store, *_: Any, **__: Any) -> None:
        """As if the machine had slept: while the first point is measured, another runner takes the server."""
        folder = store.folder / "claims" / "servers" / group.server_id
        (folder / "2").write_text(json.dumps({"runner": "another", "process": None}))

    measured = []
    from sglang_hydra.measure.sweep import serving

    real = serving.run_point

    def slept(*args: Any, **named: Any) -> Any:
        measured.append(real(*args, **named))
        taken_over(here.store)
        return measured[-1]

    monkeypatch.setattr(serving, "run_point", slept)
    from sglang_hydra.measure.sweep.claims import Claims
    from sglang_hydra.measure.sweep.job import Stop
    from sglang_hydra.measure.sweep.progress import Printed
    from sglang_hydra.measure.sweep.server_points import policy_of, run_group

    here.store.begin(sweep)
    with Claims(here.sweep_folder / "claims") as claims, open(os.devnull, "w") as nowhere:
        run_group(sweep, here.store, claims, group, policy_of(sweep, Stop()), Printed(nowhere))
    assert len(measured) == 1
    assert here.states(sweep) == {"open": 2}
    assert not list(here.sweep_folder.glob("points/*/*"))


@pytest.mark.corpus
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_ends_at_once_and_goes_on_later(place: Place, number: signal.Signals) -> None:
    place.fault = {"decode_ms": 500}
    process = place.start(place.command("bench.concurrency=1,2", "bench.num_prompts=100"))
    assert wait_until(lambda: any("/generate" in line for line in _log(place)) or _measures(place), DEADLINE_S)
    process.send_signal(number)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert place.results() == {}
    assert not list(place.sweep_folder.glob("points/*/failed/*"))
    assert place.alive() == []
    place.fault = {}
    place.run(place.command("bench.concurrency=1,2", "bench.num_prompts=100"))
    assert len(place.results()) == 2


def _log(place: Place) -> list[str]:
    return [line for file in place.sweep_folder.glob("servers/*/server.log") for line in file.read_text().splitlines()]


def _measures(place: Place) -> bool:
    """Whether a fake server has requests running."""
    import httpx

    for line in place.starts():
        words = line.split()
        with contextlib.suppress(httpx.HTTPError):
            url = f"http://127.0.0.1:{words[words.index('--port') + 1]}/requests"
            if httpx.get(url, trust_env=False).json()["requests"]:
                return True
    return False


def test_a_full_disk_is_said_and_harms_nothing(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = here.plan("bench.concurrency=1,2,3")
    from sglang_hydra.measure.sweep import store

    real, written = store.publish, []

    def full(path: Path, content: str) -> bool:
        if path.name == "result.json" and written:
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        return real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(store, "publish", full)
        with pytest.raises(MachineError) as caught:
            run(sweep)
    (finding,) = caught.value.findings
    assert (finding.id, caught.value.exit_code) == ("STO004", 3)
    assert "No space left on device" in finding.message
    assert here.states(sweep) == {"done": 1, "open": 2}
    assert wait_until(lambda: len(here.alive()) == 0, DEADLINE_S)
    assert run(sweep) == 0
    assert here.states(sweep) == {"done": 3}


UNWRITABLE = {
    errno.ENOSPC: "free space on the disk",
    errno.EDQUOT: "free space on the quota",
    errno.ELOOP: "leads to itself",
    errno.ENAMETOOLONG: "too long",
    errno.EACCES: "may not write there",
    errno.EPERM: "may not write there",
    errno.EROFS: "read-only",
    errno.ENOTDIR: "a file is where a folder is needed",
    errno.EIO: "the disk or its server fails",
}


@pytest.mark.parametrize("number", UNWRITABLE)
def test_what_cannot_be_written_is_said_by_its_cause(here: Place, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(path: Path, content: str) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("sglang_hydra.measure.sweep.store.write_below", refused)
    with pytest.raises(MachineError) as caught:
        run(here.plan())
    (finding,) = caught.value.findings
    assert finding.id == "STO004"
    assert f"{os.strerror(number)} ({here.sweep_folder}/sweep.json)" in finding.message
    assert UNWRITABLE[number] in str(finding.hint)
    assert ("free space" in str(finding.hint)) == (number in (errno.ENOSPC, errno.EDQUOT))


@pytest.mark.parametrize(
    ("kind", "number"), [("loop", errno.ELOOP), ("file", errno.ENOTDIR), ("name", errno.ENAMETOOLONG)]
)
def test_a_folder_that_cannot_be_is_said_by_its_cause(here: Place, tmp_path: Path, kind: str, number: int) -> None:
    if kind == "loop":
        (tmp_path / "loop").symlink_to("loop")
    if kind == "file":
        (tmp_path / "file").write_text("")
    folder = tmp_path / {"loop": "loop/x", "file": "file/x", "name": "x" * 300}[kind]
    said = " ".join(here.run(here.command(f"sweep.folder={folder}"), 3).split())
    assert "STO004" in said
    assert os.strerror(number) in said
    assert UNWRITABLE[number] in said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rerun": ["slow"]}, "sweep.rerun names 'slow'"),
        ({"max_jobs": 0}, "sweep.max_jobs=0 must be at least 1"),
        ({"retries": -1}, "sweep.retries=-1 must be at least 0"),
        ({"search": "guess"}, "sweep.search=guess is not bisect"),
        ({"search": "bisect"}, "no SLO is set"),
    ],
)
def test_settings_that_mean_nothing_start_nothing(place: Place, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(place.plan(**settings))
    assert not place.sweep_folder.exists()


def test_an_api_key_is_in_no_file_of_a_sweep(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_HYDRA_API_KEY", raising=False)
    monkeypatch.setitem(os.environ, "SGLANG_HYDRA_API_KEY", "")
    key = "sk-very-secret-4711"
    sweep = here.plan(f"api_key={key}", "bench.concurrency=1")
    assert run(sweep) == 0
    for file in here.folder.rglob("*"):
        if file.is_file() and "venv" not in file.parts:
            assert key.encode() not in file.read_bytes(), file


def test_a_server_that_is_another_one_here_is_not_measured(here: Place) -> None:
    sweep = here.plan("bench.concurrency=1,2")
    (group,) = sweep.groups
    other = _with_server(sweep, "0" * 16)
    assert run(other) == 4
    (failure,) = here.store.failures(next(other.points()).point_id)
    assert failure["kind"] == "not_planned"
    assert failure["findings"][0]["id"] == "RNR001"
    assert here.starts() == []
    assert group.server_id != "0" * 16


def _with_server(sweep: Sweep, id: str) -> Sweep:
    from dataclasses import replace

    (group,) = sweep.groups
    return replace(sweep, groups=(replace(group, server_id=id),))


def test_nothing_is_left_to_threads(here: Place) -> None:
    before = set(threading.enumerate())
    run(here.plan("bench.concurrency=1"))
    assert set(threading.enumerate()) <= before
