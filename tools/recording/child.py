"""The process that runs the released package. It reads requests from stdin and writes answers to stdout, one JSON
object a line: first {"version", "python"} or {"refused"}, then the answer to each request, in their order, which is
{"refused": reason} where something was asked that is not faked.

A request is {"case": {...}}, {"table": "defaults"} or {"table": "cli"}.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recording import outcome, tables
from recording.inert import Unfaked
from recording.released import LayoutError, Released


def refuse(value: object) -> str:
    """Stands where json finds a value that it cannot write, such as a part of an inert module."""
    raise Unfaked(f"its outcome holds what is not JSON: {value!r}")


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing that the package prints may get between the answers
    sys.argv = ["sglang"]
    try:
        released = Released()
    except (LayoutError, Unfaked) as error:
        print(json.dumps({"refused": str(error)}), file=answers)
        return 1
    print(json.dumps({"version": released.version, "python": platform.python_version()}), file=answers)
    make: dict[str, Callable[[Released], Any]] = {"defaults": tables.defaults, "cli": tables.command_line}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "case" in request:
                answer = json.dumps(outcome.record(released, request["case"]), default=refuse)
            else:
                answer = json.dumps(make[request["table"]](released), default=refuse)
        except Unfaked as error:
            answer = json.dumps({"refused": str(error)})
        print(answer, file=answers)
    answers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
