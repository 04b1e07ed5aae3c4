"""Run by an interpreter that has SGLang: what its own command line reader makes of argument vectors.

Reads a JSON list of argument vectors from stdin and writes one JSON line for each: every argument as it was read,
before any rule, or that it was refused. No key is ever written.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any


def main() -> None:
    cases = json.load(sys.stdin)
    # What SGLang prints is not the answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(exit_on_error=False)
    ServerArgs.add_cli_args(parser)
    for argv in cases:
        print(json.dumps(answer(parser, argv), sort_keys=True), file=answers, flush=True)


def answer(parser: argparse.ArgumentParser, argv: list[str]) -> dict[str, Any]:
    try:
        read = vars(parser.parse_args(argv))
    except SystemExit:
        return {"refused": "argparse"}
    except Exception as refusal:  # noqa: BLE001 - whatever SGLang raises is its answer
        return {"refused": f"{type(refusal).__name__}: {refusal}"}
    return {name: "set" if name == "api_key" and value else repr(value) for name, value in read.items()}


if __name__ == "__main__":
    main()
