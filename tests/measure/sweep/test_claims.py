"""Who works on what: one runner at a time, also when one is killed, paused, or on another machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_hydra.measure.sweep.claims import Claims
from tests.run.launch.processes import wait_until

DEADLINE_S = 60.0
HOLDER = """
import sys, time
from pathlib import Path
from sglang_hydra.measure.sweep.claims import Claims
with Claims(Path(sys.argv[1]), beat_s=0.05) as claims:
    print(claims.take("one"), flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Holds the claim on "one"."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert "Claim" in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_one_runner_has_a_claim_until_it_gives_it_back(tmp_path: Path) -> None:
    with Claims(tmp_path) as one, Claims(tmp_path) as two:
        held = one.take("a/b")
        assert held is not None
        assert one.holds(held)
        assert two.take("a/b") is None
        assert one.take("a/b") is None
        assert not two.is_free("a/b")
        one.release(held)
        assert two.is_free("a/b")
        assert two.take("a/b") is not None
        assert not one.holds(held)


def test_of_many_that_try_one_gets_it(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        runners = [stack.enter_context(Claims(tmp_path)) for _ in range(8)]
        together, got = threading.Barrier(8), []

        def try_it(runner: Claims) -> None:
            together.wait()
            got.append(runner.take("one"))

        threads = [threading.Thread(target=try_it, args=(runner,)) for runner in runners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len([claim for claim in got if claim]) == 1


def test_a_killed_runner_is_taken_over_at_once(tmp_path: Path) -> None:
    with another_process(tmp_path) as holder, Claims(tmp_path) as claims:
        assert claims.take("one") is None
        holder.kill()
        holder.wait()
        claim = claims.take("one")
        assert claim is not None
        assert claim.number == 2


def test_a_living_runner_keeps_its_claim_beyond_the_lease(tmp_path: Path) -> None:
    with another_process(tmp_path), Claims(tmp_path, lease_s=1.0) as claims:
        beats = tmp_path / "runners"  # where a draft of the next beat lies too, for a moment
        (file,) = [path for path in beats.glob("*.json") if claims.runner not in path.name]
        for _ in range(5):
            before = json.loads(file.read_text())["count"]
            assert claims.take("one") is None
            assert wait_until(lambda last=before: json.loads(file.read_text())["count"] > last + 5, DEADLINE_S)


def test_a_paused_runner_is_taken_over_and_knows_it(tmp_path: Path) -> None:
    """Its process lives, so only its silence tells."""
    with another_process(tmp_path) as holder, Claims(tmp_path, lease_s=0.3) as claims:
        holder.send_signal(signal.SIGSTOP)
        found = []
        assert wait_until(lambda: bool(found.append(claims.take("one")) or found[-1]), DEADLINE_S)
        assert found[-1].number == 2
        holder.send_signal(signal.SIGCONT)
    with Claims(tmp_path) as paused:
        assert not paused.holds(found[-1]._replace(number=1))


def test_a_runner_elsewhere_is_known_by_its_heartbeat_alone(tmp_path: Path) -> None:
    with Claims(tmp_path, lease_s=0.3, beat_s=0.02) as here:
        file = tmp_path / "one" / "1"
        file.parent.mkdir()
        process = {"pid": os.getpid(), "started": "1", "boot": "other", "namespace": "", "host": "elsewhere"}
        file.write_text(json.dumps({"runner": "theirs", "process": process}))
        beat = tmp_path / "runners" / "theirs.json"
        for count in range(20):
            beat.write_text(json.dumps({"count": count}))
            assert here.take("one") is None
        assert wait_until(lambda: here.take("one") is not None, DEADLINE_S)


def test_a_claim_without_an_owner_gets_a_lease_to_show_one(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "1").touch()
    with Claims(tmp_path, lease_s=0.2) as claims:
        assert claims.take("one") is None
        assert wait_until(lambda: claims.take("one") is not None, DEADLINE_S)


def test_a_full_disk_stops_no_heartbeat_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Claims(tmp_path, beat_s=0.02) as claims:
        file = tmp_path / "runners" / f"{claims.runner}.json"

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("sglang_hydra.measure.sweep.claims.write_below", full)
            before = claims._count
            assert wait_until(lambda: claims._count > before + 3, DEADLINE_S)
        written = json.loads(file.read_text())["count"]
        assert wait_until(lambda: json.loads(file.read_text())["count"] > written, DEADLINE_S)
    assert not file.exists()
