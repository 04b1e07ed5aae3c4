"""What a plan of another release costs, against a Hydra app that does nothing.

    python benchmarks/release_plan_cost.py [--runs 15] [--release 0.5.23]

Whole processes, in turns, medians: a plan whose answer is recorded, one whose answer was kept, and one whose release
has to be asked (its wheel is here: ``release fetch`` is run first). Targets as ratios to the empty app: recorded and
kept 1.3, asked 9; 130 MiB for both processes together. Then points of a sweep in one process: 0.2 of an empty app
where the release is asked, 2 ms where its answer was kept. Nothing fails when a target is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from processes import EMPTY_APP, REPOSITORY, interleaved

SERVER = ["gpu=b200", "model=deepseek_v3", "tp_size=8"]
SERVE = [sys.executable, str(REPOSITORY / "serve.py")]
POINTS = 40


def main() -> None:
    parser = argparse.ArgumentParser(description="Times plans of another release.")
    parser.add_argument("--runs", type=int, default=15, help="runs of each, after one that does not count")
    parser.add_argument("--release", default="0.5.23")
    options = parser.parse_args()
    subprocess.run([*SERVE, "release", "fetch", options.release], check=True)
    plan = [*SERVE, "plan", f"engine.version={options.release}", *SERVER]
    asked = " ".join([*plan, "max_running_requests=$$"])  # another number each time
    commands = {
        "empty app": [sys.executable, "-c", EMPTY_APP],
        "recorded": plan,
        "kept": [*plan, "max_running_requests=77"],
        "asked": ["sh", "-c", f"exec {asked}"],
    }
    costs = interleaved(commands, options.runs)
    empty = costs["empty app"].seconds
    print(f"{' '.join(plan[2:])}   median of {options.runs}, empty app {empty * 1000:.0f} ms")
    for name, target in {"recorded": 1.3, "kept": 1.3, "asked": 9}.items():
        took = costs[name].seconds
        print(f"  {name:9} {took * 1000:5.0f} ms   ratio {took / empty:.2f} (target {target})")
    print(f"  peak of both processes {_peak_mib([*plan, 'max_running_requests=78']):.0f} MiB (target 130)")
    _points(options.release, empty)


def _peak_mib(command: list[str]) -> float:
    """The largest sum of the peaks of a process and its children, in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, sum(_peak_of(pid) for pid in [process.pid, *_children(process.pid)]))
        time.sleep(0.005)
    return peak


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _peak_of(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _points(release: str, empty: float) -> None:
    """Plans the points of a sweep, which have their own server each, twice in this process."""
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.compose.overrides import Request
    from sglang_hydra.measure.sweep.grid import read_grid
    from sglang_hydra.measure.sweep.planning import plan_sweep

    composer, base = Composer(), time.time_ns() % 1_000_000_000

    def seconds(first: int, points: int) -> float:
        numbers = f"max_running_requests=range({first},{first + points})"
        words = [f"engine.version={release}", *SERVER, numbers, "sweep.dry_run=true"]
        start = time.perf_counter()
        plan_sweep(composer, read_grid(composer, [Request(word, "a benchmark") for word in words]), 1, {})
        return (time.perf_counter() - start) / points

    seconds(base, 1)  # the child starts
    first, again = seconds(base + 1, POINTS), seconds(base + 1, POINTS)
    print(f"  a point   first {first * 1000:.1f} ms, {first / empty:.2f} of the empty app (target 0.2);")
    print(f"            again {again * 1000:.1f} ms (target 2)")


if __name__ == "__main__":
    main()
