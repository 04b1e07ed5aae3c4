"""Counts how well the changes that releases make are explained: a place, and a condition, for how many of them.

    python tools/explained_releases.py [VERSION ...] [--every N] [--values]

Without a version every release whose wheels are here. The command lines of tests/data/releases are put to four kinds
of machine, 140 cases; ``--every 5`` takes each fifth. ``--values`` asks each case without as well, and compares.

A change is a field that the release's code set after the command line was parsed; one that nobody saw happen counts as
one without a place. Exits 1 below the thresholds, where a refusal has no check, and where an answer differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from release_cases import CASES, MODELS, machines, read_cases

from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.release import ask_release
from sglang_hydra.releases.wheels import installed_releases
from sglang_hydra.rules.answer import Answer

PLACE = 97.0
CONDITION = (("0.5.20", 85.0), ("0.5.18", 65.0), ("0.5.13", 50.0), ("0.5.2", 100.0))
"""From a release on, the percentage of changes with a condition, newest first."""


def cases(every: int = 1) -> Iterator[Case]:
    """The command lines of one release's cases on each machine, so that one child serves many."""
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    lines = [case for case in read_cases(CASES) if case["release"] == "0.5.12"]
    asked = [
        Case(tuple(line["argv"]), machine, {name: models[name] for name in line["models"]})
        for machine in machines()
        for line in lines
    ]
    yield from asked[::every]


def count(answers: Sequence[Answer]) -> Counter[str]:
    """How many changes there are, with a place, with a condition; how many refusals after parsing, with a check."""
    found: Counter[str] = Counter()
    for answer in answers:
        for change in answer.changes:
            found["changes"] += 1
            found["place"] += change.step is not None
            found["condition"] += change.step is not None and any(change.step.all_conditions())
        if answer.ok is False and answer.stage != "argparse":
            found["refusals"] += 1
            found["check"] += answer.check is not None
        found["unanswered"] += answer.ok is None
    return found


def threshold(version: str) -> float:
    """The percentage of changes that have to have a condition."""
    return next(percent for known, percent in CONDITION if at_least(version, known))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--values", action="store_true")
    options = parser.parse_args(argv)
    asked, failed = list(cases(options.every)), False
    print(f"{'release':9}{'changes':>9}{'place %':>9}{'condition %':>13}{'refusals':>10}{'check':>7}{'s':>7}")
    for version in options.version or installed_releases():
        begun = time.monotonic()
        answers = ask_release(version, asked, use_kept=False, why=True)
        found = count(answers)
        place, condition = (100 * found[name] / max(1, found["changes"]) for name in ("place", "condition"))
        took = time.monotonic() - begun
        print(
            f"{version:9}{found['changes']:9}{place:9.1f}{condition:13.1f}{found['refusals']:10}{found['check']:7}"
            f"{took:7.0f}",
            flush=True,
        )
        failed |= place < PLACE or condition < threshold(version) or found["check"] < found["refusals"]
        failed |= not found["changes"] or bool(found["unanswered"])
        if options.values:
            failed |= _differs(version, asked, answers)
    return 1 if failed else 0


def _differs(version: str, asked: Sequence[Case], answers: Sequence[Answer]) -> bool:
    """Whether an answer with reasons is another one than that without."""
    plain = ask_release(version, asked, use_kept=False)
    bare = [answer._replace(changes=(), check=None) for answer in answers]
    wrong = [
        case
        for case, one, other in zip(asked, plain, bare, strict=True)
        if (one.ok, one.values, one.stage, one.error) != (other.ok, other.values, other.stage, other.error)
    ]
    for case in wrong:
        print(f"{version}: another answer with reasons: {' '.join(case.argv)} on {case.machine['name']}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
