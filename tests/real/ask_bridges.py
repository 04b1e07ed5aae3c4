"""Run by an interpreter that has SGLang: one server's arguments in three ways, and whether they are the same.

Reads a JSON list of objects with ``argv``, ``kwargs`` and ``config`` (the path of a --config file, or null) from stdin
and writes for each what SGLang holds after each of them, as text by field.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any


def held(args: Any) -> dict[str, str]:
    """Every field, of a dataclass (0.5.2) as of a struct (0.5.23). The identity of an adapter is drawn anew each
    time."""
    names = getattr(args, "__struct_fields__", None) or vars(args)
    return {name: re.sub(r"lora_id='\w+'", "lora_id", repr(getattr(args, name))) for name in names}


def main() -> None:
    cases = json.load(sys.stdin)
    # What SGLang prints is not the answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    from sglang.srt.server_args import ServerArgs, prepare_server_args

    before = dict(os.environ)
    for case in cases:
        answer = {"argv": held(prepare_server_args(case["argv"])), "kwargs": held(ServerArgs(**case["kwargs"]))}
        if case["config"] is not None:
            answer["config"] = held(prepare_server_args(["--config", case["config"]]))
        print(json.dumps(answer), file=answers, flush=True)
        # SGLang sets variables while it resolves; the next case must not see them.
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    main()
