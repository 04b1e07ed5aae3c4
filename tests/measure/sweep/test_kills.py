"""kill -9 of a runner, its client or its server at random moments: what was measured stays, the rest comes."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.commands import must_follow
from tests.measure.sweep.place import DEADLINE_S, Place, faultless, place_in
from tests.run.launch.processes import listens, wait_until

SEED = 20251
TARGETS = ("runner", "client", "server", "guard", "start")
"""``guard`` is one of the two processes of a server's guard alone; ``start`` is a server before it answers."""
LONGEST_S = 3.0


def chosen(place: Place, runner: subprocess.Popen[str], target: str, draw: random.Random) -> psutil.Process | None:
    """A living process of the kind; None where there is none at this moment."""
    if target == "runner":
        return psutil.Process(runner.pid) if runner.poll() is None else None
    mark = {"guard": "guard.py"}.get(target, "child_sglang.py")
    found = []
    for process in place.alive():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if target == "client":
                if any("load_process" in word for word in words):
                    found.append(process)
                continue
            # A guard has the server's words behind its own.
            first = next((word for word in words if word.endswith(".py")), "")
            if not first.endswith(mark):
                continue
            if target != "start" or not listens(int(words[words.index("--port") + 1])):
                found.append(process)
    return draw.choice(sorted(found, key=lambda process: process.pid)) if found else None


def disturbed(place: Place, words: list[str], kills: int, seed: int, longest_s: float) -> dict[str, int]:
    """Runs a sweep while it is killed at; a runner that has ended is replaced by ``resume``. Returns what was killed,
    fewer than asked where the sweep was done before."""
    draw = random.Random(seed)
    count = dict.fromkeys(TARGETS, 0)
    resume = [sys.executable, "serve.py", "resume", str(place.sweep_folder), "sweep.rerun=[failed]"]
    runner = place.start(words)
    said = ""
    try:
        while sum(count.values()) < kills:
            target, wait_s = draw.choice(TARGETS), draw.uniform(0, longest_s)
            with contextlib.suppress(subprocess.TimeoutExpired):
                said, _ = runner.communicate(timeout=wait_s)
                if runner.returncode == 0:
                    return count
                begun = (place.sweep_folder / "sweep.json").exists()
                runner = place.start(resume if begun else words)
                continue
            process = chosen(place, runner, target, draw)
            if process is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                count[target] += 1
    finally:
        runner.kill()
        runner.communicate()
    assert "Traceback" not in said, said
    return count


def survives(
    folder: Path, python: Path, kills: int, seed: int, *axes: str, longest_s: float = LONGEST_S, start_ms: float = 0.0
) -> Counter[str]:
    """One sweep, killed at up to ``kills`` times. Returns what was killed."""
    with place_in(folder, python) as place:
        place.fault = {"decode_ms": 10, "start_ms": start_ms}
        words = place.command(*axes, "bench.num_prompts=4", "sweep.retries=3")
        expected = {point.point_id for point in place.plan(*axes).points()}
        count = disturbed(place, words, kills, seed, longest_s)
        for _ in range(3):  # the last kill may have been the final failure of a point
            ended = place.start([*words, "sweep.rerun=[failed]"])
            said, _ = ended.communicate(timeout=DEADLINE_S)
            if ended.returncode == 0:
                break
        assert ended.returncode == 0, said
        results = place.results()
        assert set(results) == expected
        for record in results.values():
            must_follow(record, "result")
            assert faultless(record), record["reasons"]
        for file in place.sweep_folder.glob("**/*.json"):
            json.loads(file.read_text())
        assert not list(place.sweep_folder.glob("points/**/*.part"))
        assert not list(place.sweep_folder.glob("points/*/superseded/?.json")), "a result was taken twice"
        assert wait_until(lambda: place.alive() == [], DEADLINE_S), [item.cmdline() for item in place.alive()]
        return Counter(count)


@pytest.mark.thorough
def test_a_few_kills_lose_nothing(tmp_path: Path, fake_python: Path) -> None:
    """On a quick machine a sweep may be done before anything is hit: then another one is."""
    axes = ("chunked_prefill_size=512,1024", "bench.concurrency=1,2,3,4")
    killed = 0
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        killed += survives(folder, fake_python, 5, SEED + number, *axes, longest_s=0.8).total()
        if killed:
            return
    pytest.fail("ten sweeps were done before anything was killed")


@pytest.mark.long
@pytest.mark.timeout(3400)
def test_sixty_kills_lose_nothing(tmp_path: Path, fake_python: Path) -> None:
    """As many sweeps of 24 points as it takes to be killed at 60 times, five at a guard and at a start."""
    axes = ("chunked_prefill_size=512,1024,2048,4096", "bench.concurrency=1,2,3", "bench.output_len=2,3")
    killed: Counter[str] = Counter()
    number, end = 0, time.monotonic() + 3300
    while killed.total() < 60 or min(killed["guard"], killed["start"]) < 5:
        assert time.monotonic() < end, killed
        folder = tmp_path / str(number)
        folder.mkdir()
        count = survives(folder, fake_python, 12, SEED + number, *axes, longest_s=1.5, start_ms=1500)
        killed += count
        number += 1
        print(f"sweep {number}: 24 of 24 results after {dict(count)}", flush=True)
    print(f"{killed.total()} kills in {number} sweeps: {dict(killed)}")
