"""What planning a sweep costs a point, against what Hydra's own multirun costs a job of an empty task.

    python benchmarks/sweep_planning.py [--points 10000] [--jobs 40] [--streamed 100000]

Ours: the points of 2 GPU classes x 3 models x 4 keys, each composed, resolved, checked and fitted. Hydra's:
jobs of a task that does nothing, swept by its BasicSweeper in the same run. Targets: at least 60 times less, below 2 ms
a point on two cores, and memory that grows by less than 150 bytes a point. Nothing fails when one is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.measure.sweep.grid import read_grid
from sglang_hydra.measure.sweep.planning import Outcome, plan_sweep

GROUPS = ["gpu=h100,h200", "model=qwen3_8b,gpt_oss_120b,llama_3_1_70b"]
# Three keys of the server, so that hardly any point shares a plan with another, and one of the load.
KEYS = ["tp_size=1,2,4,8", "mem_fraction_static=range(0.5,0.9,0.04)", "chunked_prefill_size=2048,4096,8192,-1"]
EMPTY_TASK = """
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="sglang_hydra")
def task(config):
    pass

task()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Times planning a sweep against Hydra's multirun.")
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--streamed", type=int, default=100_000)
    options = parser.parse_args()
    ours = _ours(options.points)
    shared = _ours(options.points, of_server=False)
    hydra = _hydra(options.jobs)
    print(f"Hydra, {options.jobs} jobs of an empty task: {hydra * 1e3:.1f} ms a job")
    print(
        f"ours, four keys of the server: {ours * 1e3:.3f} ms a point, {hydra / ours:.0f} times less (target 60, 2 ms)"
    )
    print(f"ours, one of them the load's:  {shared * 1e3:.3f} ms a point, {hydra / shared:.0f} times less")
    for name, of_server in (("load", False), ("server", True)):
        grown = _grown(options.streamed, of_server)
        print(f"memory, {options.streamed} points over the {name}'s keys: {grown:.0f} bytes a point (target 150)")


def _ours(points: int, *, of_server: bool = True) -> float:
    """Seconds a point."""
    begun = time.perf_counter()
    outcome = _planned(points, of_server)
    seconds = (time.perf_counter() - begun) / outcome.total
    print(f"  {outcome.total} points: {outcome.kept} kept on {outcome.starts} servers, {len(outcome.refused)} reasons")
    return seconds


def _planned(points: int, of_server: bool) -> Outcome:
    of_others = len(["h100", "h200"]) * len(["qwen3_8b", "gpt_oss_120b", "llama_3_1_70b"]) * 4 * 10 * 4
    last = max(1, round(points / of_others))
    key = "max_running_requests" if of_server else "bench.concurrency"
    words = [*GROUPS, *KEYS, f"{key}=range(8,{8 + last})", "sweep.dry_run=true"]
    composer = Composer()
    grid = read_grid(composer, [Request(word, f"argument {number}") for number, word in enumerate(words, 1)])
    return plan_sweep(composer, grid, 42, {})


def _grown(points: int, of_server: bool) -> float:
    """Bytes that the most memory of a process rises by, from a tenth of the points to all of them, a point."""
    peaks = []
    for count in (points // 10, points):
        code = f"import sys; sys.argv[0] = {__file__!r}; from sweep_planning import peak; peak({count}, {of_server})"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=Path(__file__).parent, check=True, capture_output=True, text=True
        )
        peaks.append(json.loads(done.stdout))
    (few, before), (many, after) = peaks
    return float(after - before) / (many - few)


def peak(points: int, of_server: bool) -> None:
    """Plans, and prints how many points it were and the most memory that the process took, in bytes."""
    outcome = _planned(points, of_server)
    gc.collect()
    print(json.dumps([outcome.total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def _hydra(jobs: int) -> float:
    """Seconds a job, the start of the process left out: the difference between many jobs and one."""
    from sglang_hydra.text.locations import conf_dir

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "task.py").write_text(EMPTY_TASK.replace('"conf"', repr(str(conf_dir()))), encoding="utf-8")
        seconds = [_multirun(folder, count) for count in (1, jobs)]
    return (seconds[1] - seconds[0]) / (jobs - 1)


def _multirun(folder: str, jobs: int) -> float:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    words = ["-m", "gpu=h100", "model=qwen3_8b", "engine=sglang"]
    sizes = ",".join(str(size) for size in range(1, jobs + 1))
    code = "import sglang_hydra.compose.schema; sglang_hydra.compose.schema.register(); exec(open('task.py').read())"
    command = [sys.executable, "-c", code, *words, f"max_running_requests={sizes}"]
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
