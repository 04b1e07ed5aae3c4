"""How well ``diagnose`` does on its public cases, class by class, and how fast it reads.

    python benchmarks/diagnosis_table.py [INDEX]

INDEX names another index of cases of the same form. Beside our score stands that of the obvious baseline: a grep for
the last line that reads like an error, which is right where it shows the deciding line. The exit code is 1 where fewer
than 85 % are classified right, or one is wrong.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that a bare checkout will do

from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, diagnose  # noqa: E402
from sglang_hydra.run.diagnose.lines import read_lines  # noqa: E402

INDEX = ROOT / "tests" / "data" / "diagnosis" / "index.json"
LEAST_RIGHT = 0.85
_ERROR = re.compile(r"error|exception|fail|fatal|killed|out of memory|timed? ?out", re.IGNORECASE)
_WORK = (
    "[2025-09-13 09:09:15 TP0] Decode batch. #running-req: 4, #token: 9071, token usage: 0.01, cuda graph: True, gen "
    "throughput (token/s): 93.51, #queue-req: 0, "
)
_LINES = 100_000


def main(arguments: list[str]) -> int:
    index = Path(arguments[0]) if arguments else INDEX
    cases = json.loads(index.read_text(encoding="utf-8"))["cases"]
    right: Counter[str] = Counter()
    grepped: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    wrong: list[str] = []
    for case in cases:
        with (index.parent / case["file"]).open("rb") as file:
            found = diagnose(read_lines(file), case.get("exit_code"))
        grepped[case["class"]] += _grep_is_right(index.parent / case["file"], case["line"])
        if found.kind == case["class"]:
            right[case["class"]] += 1
        elif found.kind == UNKNOWN:
            unknown[case["class"]] += 1
        else:
            wrong.append(f"{case['file']}: {case['class']} was taken for {found.kind} ({found.confidence:.0%} sure)")
    print("\n".join(_table(cases, right, unknown, grepped)))
    print("\n".join(["", *wrong] if wrong else ["", "none is wrong"]))
    share = sum(right.values()) / len(cases)
    counts = f"{sum(right.values())} of {len(cases)} right ({share:.1%})"
    print(f"{counts}, {sum(unknown.values())} unknown, {len(wrong)} wrong")
    shown = sum(grepped.values())
    print(
        f"a grep for the last error shows the deciding line of {shown} ({shown / len(cases):.1%}), and names no class"
    )
    print(f"{_LINES / _seconds():,.0f} lines of work a second")
    return int(share < LEAST_RIGHT or bool(wrong))


def _grep_is_right(log: Path, deciding: str | None) -> bool:
    """Whether the last line with a word of error is the deciding one; without one, whether there is no such line."""
    with log.open("rb") as file:
        last = next((line for line in reversed(list(read_lines(file))) if _ERROR.search(line)), None)
    return last is None if deciding is None else last is not None and deciding[:80] in last


def _table(
    cases: list[dict[str, str]], right: Counter[str], unknown: Counter[str], grepped: Counter[str]
) -> Iterator[str]:
    total = Counter(case["class"] for case in cases)
    yield f"{'class':26} {'cases':>5} {'right':>5} {'unknown':>7} {'wrong':>5} {'grep':>5}"
    for name, count in sorted(total.items()):
        missed = count - right[name] - unknown[name]
        yield f"{name:26} {count:5} {right[name]:5} {unknown[name]:7} {missed:5} {grepped[name]:5}"


def _seconds() -> float:
    start = time.perf_counter()
    diagnose(_WORK for _ in range(_LINES))
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
