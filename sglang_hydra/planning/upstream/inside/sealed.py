"""The answers of a release whose every question is known: its argument code among inert modules.

Reads cases from stdin and writes answers to stdout, one JSON object a line: first {"version", "way"} or {"refused"},
then for each case {"ok", "values", "fields"} with the values that are not at their defaults, {"ok": false, "stage",
"error"}, or {"refused"} where it asked something that nothing here answers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from . import outcome
from .answers import answers_apart
from .inert import Unfaked
from .released import LayoutError, Released


def main() -> int:
    with answers_apart() as answer:
        sys.argv = ["sglang"]
        try:
            released = Released()
        except (LayoutError, Unfaked) as error:
            answer({"refused": str(error)})
            return 1
        answer({"version": released.version, "way": "sealed"})
        for line in sys.stdin:
            try:
                answer(_asked(released, json.loads(line)))
            except Unfaked as error:
                answer({"refused": str(error)})
    return 0


def _asked(released: Released, case: dict[str, Any]) -> dict[str, Any]:
    made = outcome.record(released, case)
    if case.get("whole"):
        return made
    if not made["ok"]:
        line = f" (server_args.py:{made['line']})" if made.get("line") else ""
        return {"ok": False, "stage": made["stage"], "error": f"{made['error_type']}: {made['error']}{line}"}
    return {"ok": True, "values": made["resolved"], "fields": None}
