"""Run by an interpreter that has SGLang: what its own argument class makes of command lines.

Reads a JSON list of argument vectors from stdin and writes one JSON line for each: the 210 values after construction
and check, or where it was refused. No key is ever written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from typing import Any


def outcome(argv: list[str]) -> dict[str, Any]:
    from sglang.srt.server_args import prepare_server_args

    stage = "argparse"
    try:
        stage = "post_init"
        args = prepare_server_args(argv)
        stage = "check"
        args.check_server_args()
    except SystemExit:
        return {"refused": "argparse"}
    except Exception as refusal:  # noqa: BLE001 - whatever SGLang raises is its answer
        return {"refused": stage, "says": f"{type(refusal).__name__}: {refusal}"}
    values = dataclasses.asdict(args)
    for adapter in values["lora_paths"] or []:
        # Drawn anew by each construction: the one difference that there is.
        adapter.pop("lora_id")
    values["api_key"] = None if values["api_key"] is None else "set"
    return {"values": values}


@contextlib.contextmanager
def same_environment() -> Iterator[None]:
    """SGLang sets variables while it resolves; the next case must not see them."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    cases = json.load(sys.stdin)
    # What SGLang prints is not the answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    for argv in cases:
        with same_environment():
            print(json.dumps(outcome(argv)), file=answers, flush=True)


if __name__ == "__main__":
    main()
