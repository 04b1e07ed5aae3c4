"""Record what every release's own command-line parser makes of every flag of every release.

    python tools/record_parsers.py            # runs each recorded release sealed, 1 minute; fetches what is missing
    python tools/record_parsers.py --check    # compares instead of writing

Each flag of each recorded release is typed in each of them: alone, shortened by a letter, with a number, a word, two
numbers, JSON, behind ``=``, and with each of its choices. tests/data/parsers.json.gz has the releases and, for each
line, where its outcome changes: ``[release's number, outcome]``, the values that argparse set or the kind of refusal.

Exit code: 0 written or equal, 1 different.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "data" / "parsers.json.gz"
CODE = Path(__file__).with_name("releases") / "sealed_parser.py"
_AT_ONCE = 500
"""Lines that a child is asked in one case, which has a limit of time."""
_VALUES = (["7"], ["x"], ["7", "8"], ["{}"], ["[1]"], ["7k"])


def lines_of(flags: Iterable[str], choices: Mapping[str, Iterable[Any]]) -> Iterator[list[str]]:
    """The lines to ask for these flags and the choices that any release has for them."""
    for flag in sorted(set(flags) - {"-h", "--help"}):
        yield from ([flag], [flag[:-1], "7"], [f"{flag}=7"], [f"{flag}=x"])
        yield from ([flag, *values] for values in _VALUES)
        yield from ([flag, choice] for choice in sorted({str(item) for item in choices.get(flag, ())}))


def ask(version: str, lines: list[list[str]]) -> dict[str, Any]:
    """The outcome of each line by a release's own parser, with its flags and choices. Raises ChildFailed."""
    from sglang_hydra.releases import wheels
    from sglang_hydra.releases.process import Child
    from sglang_hydra.releases.records import records
    from sglang_hydra.releases.release import PLAIN_MACHINE

    record = records()[version]
    child = Child(record, wheels.fetch(record, print), PLAIN_MACHINE, before=CODE.read_text(encoding="utf-8"))
    try:
        found: dict[str, Any] = {"lines": []}
        for start in range(0, max(1, len(lines)), _AT_ONCE):
            words = json.dumps(lines[start : start + _AT_ONCE])
            case = {"argv": [words], "machine": PLAIN_MACHINE, "models": {}, "files": {}}
            answer = child.ask(case)["values"]
            found = {**answer, "lines": found["lines"] + answer["lines"]}
    finally:
        child.end()
    return found


def recorded() -> dict[str, Any]:
    """What every release makes of every line."""
    from sglang_hydra.releases.records import records

    flags: set[str] = set()
    choices: dict[str, set[Any]] = {}
    for version in records():
        known = ask(version, [])
        flags.update(known["flags"])
        for flag, values in known["choices"].items():
            choices.setdefault(flag, set()).update(values)
    lines = list(lines_of(flags, choices))
    outcomes: list[list[tuple[int, Any]]] = [[] for _ in lines]
    for number, version in enumerate(records()):
        for changes, outcome in zip(outcomes, ask(version, lines)["lines"], strict=True):
            if not changes or changes[-1][1] != outcome:
                changes.append((number, outcome))
    return {
        "releases": list(records()),
        "lines": {" ".join(line): changes for line, changes in zip(lines, outcomes, strict=True)},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    options = parser.parse_args()
    text = json.dumps(recorded(), separators=(",", ":")).encode()
    if options.check:
        return int(gzip.decompress(FILE.read_bytes()) != text)
    FILE.write_bytes(gzip.compress(text, mtime=0))
    print(f"{FILE}: {len(text) >> 10} KiB, {FILE.stat().st_size >> 10} KiB packed")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
