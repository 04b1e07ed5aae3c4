"""A server that went wrong: what its exit and its last words say, and what to type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.findings import Finding

_LONGEST_QUOTE = 500


class Failure(NamedTuple):
    """``kind`` is the class that the diagnosis found, or ``unknown``. The first finding says what happened, the second
    why and the smallest change that helps, where that is known."""

    kind: str
    findings: tuple[Finding, ...]


def failure_of(
    id: str,
    what: str,
    lines: Sequence[str],
    exit_code: int | None,
    log: Path | None = None,
    advice: str | None = None,
) -> Failure:
    """What went wrong with a server that wrote ``lines`` and ended with ``exit_code`` (None: it had not ended)."""
    from sglang_hydra.diagnose import diagnose

    found = diagnose(lines, exit_code)
    known = found.kind != "unknown"
    said = "" if known else last_words(lines)
    place = f"its output is in {log}" if log else "its output is above"
    happened = Finding(
        level="error",
        id=id,
        message=f"{what}; it last said: {said}" if said else what,
        fields=("engine",),
        hint=f"{advice}; {place}" if advice else place,
    )
    return Failure(found.kind, (happened, found.finding) if known else (happened,))


def last_words(lines: Sequence[str]) -> str:
    """The line that most likely says why: the last that reads like an error, else the last."""
    lines = [line.strip() for line in lines[-200:] if line.strip()]
    telling = [line for line in lines if "Error" in line or "error:" in line or line.startswith("cannot run")]
    return (telling or lines or [""])[-1][:_LONGEST_QUOTE]
