"""How a program of this room answers: JSON lines on what was stdout, which nothing that SGLang prints gets into."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from .inert import Unfaked


@contextlib.contextmanager
def answers_apart() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Gives the function that writes one answer; everything else that is printed goes to stderr from here on."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)

        def answer(record: dict[str, Any]) -> None:
            lines.write(json.dumps(record, default=_refuse) + "\n")
            lines.flush()

        yield answer


def _refuse(value: object) -> str:
    """Stands where json finds a value that it cannot write, such as a part of an inert module."""
    raise Unfaked(f"its outcome holds what is not JSON: {value!r}")
