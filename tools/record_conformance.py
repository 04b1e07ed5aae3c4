"""Regenerate conformance cases from a released SGLang.

    python tools/record_conformance.py --version 0.5.2 CASES.jsonl[.gz]... --out OUT.jsonl
    python tools/record_conformance.py --version 0.5.2 CASES.jsonl[.gz]... --compare
    python tools/record_conformance.py --version 0.5.3 --defaults defaults.json --cli cli.json

Each case says what the machine and the model are and what SGLang is given. The released package's own code runs on
them: its constructor or command line followed by its checks, or its choice of ports. The machine (torch, the vendors'
tools, optional packages, free ports), the model's config.json and the random numbers are faked, every other library is
an inert module: the environment holds the package alone (about 40 MB), and no accelerator is needed.

A case in which the release asks the machine something that is not faked is left out and named.

Exit code: 0 done, 1 some cases could not be recorded or differ (--compare), 2 nothing was recorded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recording import cases
from recording.environment import RecorderError, ask, interpreter

REPOSITORY = Path(__file__).resolve().parents[1]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    usage, _, rest = (__doc__ or "").partition("\n\n    ")
    parser = argparse.ArgumentParser(
        description=usage, epilog=rest.partition("\n\n")[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", type=Path, metavar="CASES", help="files of cases, plain or .gz")
    parser.add_argument("--version", required=True, help="the SGLang release, such as 0.5.2")
    parser.add_argument("--out", type=Path, help="write the cases with what the release does; .gz compresses")
    parser.add_argument("--compare", action="store_true", help="compare with the outcomes that CASES hold")
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="KEY",
        help="a key that --compare leaves out; another Python words some errors and counts some lines differently",
    )  # fmt: skip
    parser.add_argument("--defaults", type=Path, metavar="OUT", help="write every field with its type and default")
    parser.add_argument("--cli", type=Path, metavar="OUT", help="write every option of the command line")
    parser.add_argument("--env", type=Path, help="where the environment is or is made (.venv-record-VERSION)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for all cases together (600)")
    options = parser.parse_args(argv)
    if not (options.compare or options.out or options.defaults or options.cli):
        parser.error("nothing to do: give --out, --compare, --defaults or --cli")
    if bool(options.cases) != bool(options.compare or options.out):
        parser.error("CASES go with --out or --compare")
    targets = [path.resolve() for path in (options.out, options.defaults, options.cli) if path]
    if len({*targets, *(path.resolve() for path in options.cases)}) < len(targets) + len(set(options.cases)):
        parser.error("an output is also an input or another output")
    return options


def run(options: argparse.Namespace) -> int:
    entries = [entry for path in options.cases for entry in cases.read(path)]
    if options.compare and not all("expected" in entry for entry in entries):
        raise RecorderError("--compare: there are cases that hold no expected outcome")
    tables = {name: path for name, path in (("defaults", options.defaults), ("cli", options.cli)) if path}
    requests: list[dict[str, Any]] = [{"case": entry["case"]} for entry in entries]
    requests += [{"table": name} for name in tables]

    python = interpreter(options.version, options.env or REPOSITORY / f".venv-record-{options.version}")
    answers = ask(python, options.version, requests, options.timeout)

    for (name, path), table in zip(tables.items(), answers[len(entries) :], strict=True):
        if "refused" in table:
            raise RecorderError(f"the {name} of sglang {options.version} cannot be recorded: {table['refused']}")
        cases.write(path, json.dumps(table, indent=1))
    pairs = list(zip(entries, answers[: len(entries)], strict=True))
    recorded = [(entry, outcome) for entry, outcome in pairs if "refused" not in outcome]
    if options.out:
        lines = [{"case": entry["case"], "expected": outcome} for entry, outcome in recorded]
        cases.write(options.out, "".join(json.dumps(line) + "\n" for line in lines))
    problems = cases.refusals(pairs) + (cases.differences(recorded, options.ignore) if options.compare else [])
    print("\n".join([*problems, f"{len(recorded)} of {len(entries)} cases recorded, {len(tables)} tables"]))
    return int(bool(problems))


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        return run(options)
    except RecorderError as error:
        print(f"record_conformance: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
