"""Measures what it takes to ask releases: starting, a plan, memory, and the questions that nothing answers.

    python tools/measure_releases.py                 # every recorded release and every pinned one that is here
    python tools/measure_releases.py 0.5.23 ...

Each release answers the 35 recipes of tests/data/releases on four machines. The rows are those of docs/releases.md.
Exit code 1 where a question was not answered.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from release_cases import CASES, MODELS, machines, read_cases

from sglang_hydra.releases import wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.process import Child
from sglang_hydra.releases.records import Record, pinned_records, record_of

AITER = {"SGLANG_USE_AITER": "1"}
HEAD = """\
| release | starting, s | a plan, ms: median, largest | MiB | accepted | refused | unanswered |
|---|---|---|---|---|---|---|"""


def main(argv: Sequence[str] | None = None) -> int:
    here = [
        *wheels.installed_releases(),
        *(name for name, made in pinned_records().items() if not wheels.missing(made)),
    ]
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    unanswered = 0
    print(HEAD)
    for version in argv or sys.argv[1:] or here:
        record = record_of(version)
        if record is None or wheels.missing(record):
            print(f"measure_releases: {version} is not here: sglang-hydra release fetch {version}", file=sys.stderr)
            return 2
        unanswered += measured(record, models)
    return 1 if unanswered else 0


def measured(release: Record, models: Mapping[str, Any]) -> int:
    """Prints one row; answers with the number of cases that it left unanswered."""
    places = [place for wheel in release.wheels if (place := wheels.place_of(wheel)) is not None]
    lines = [case["argv"] for case in read_cases(CASES) if case["release"] == "0.5.12"]
    starts, plans, peak, counts = [], [], 0.0, Counter[str]()
    for machine in (*machines(), {**machines()[-1], "environment": AITER}):
        facts = {**machine, "seed": 42}
        begun = time.perf_counter()
        child = Child(release, places, Case((), facts).to_json()["machine"])
        starts.append(time.perf_counter() - begun)
        for line in lines:
            named = {word: models[word] for word in line if word in models}
            begun = time.perf_counter()
            answer = child.ask(Case(tuple(line), facts, named).to_json())
            plans.append((time.perf_counter() - begun) * 1000)
            counts["unanswered" if "unanswered" in answer else "accepted" if answer["ok"] else "refused"] += 1
            if "unanswered" in answer:
                print(f"{release.version}: {answer['unanswered']}", file=sys.stderr)
        peak = max(peak, peak_mib(child._process.pid))
        child.end()
    times = f"{statistics.median(starts):.2f} | {statistics.median(plans):.0f}, {max(plans):.0f}"
    numbers = " | ".join(str(counts[name]) for name in ("accepted", "refused", "unanswered"))
    print(f"| {release.version} | {times} | {peak:.0f} | {numbers} |", flush=True)
    return counts["unanswered"]


def peak_mib(pid: int) -> float:
    """The most memory that a process had, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    sys.exit(main())
