"""Explains the failure of a server by its exit code and last lines, with what to type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch.log import log_lines
from sglang_hydra.run.launch.signals import FOR_MEMORY
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.run.diagnose.diagnosis import Diagnosis

_LONGEST_QUOTE = 500
NOT_READY = "not_ready"
HOST_MEMORY = "host_oom"


class Failure(NamedTuple):
    """A failure: ``kind`` is the class of the diagnosis, or ``unknown``, or ``not_ready`` for an unexplained startup
    timeout. The first finding says what happened, the second, if known, why and what to change."""

    kind: str
    findings: tuple[Finding, ...]
    diagnosis: Diagnosis | None = None
    exit_code: int | None = None


def failure_of(
    id: str, what: str, lines: Sequence[str], exit_code: int | None, log: Path | None = None, advice: str | None = None
) -> Failure:
    """Explains the failure of a server that wrote ``lines`` and ended with ``exit_code`` (None: startup timeout).

    ``what`` describes the failure in words, ``advice`` helps in any case."""
    from sglang_hydra.run.diagnose.classes import UNKNOWN
    from sglang_hydra.run.diagnose.diagnosis import diagnose

    found = diagnose(lines, exit_code)
    if found.kind != HOST_MEMORY:
        what = what.replace(FOR_MEMORY, "")  # SGLang ends its own processes by SIGKILL once one of them has failed
    last = "" if found.known else last_words(lines)
    place = f"its output is in {log}" if log else "its output is above"
    message = f"{what}; its last line: {last}" if last else what
    happened = Finding("error", id, message, ("engine",), f"{advice}; {place}" if advice else place)
    if found.known:
        return Failure(found.kind, (happened, found.finding), found, exit_code)
    return Failure(NOT_READY if exit_code is None else UNKNOWN, (happened,), None, exit_code)


def with_smallest_change(
    findings: Sequence[Finding],
    diagnosis: Diagnosis | None,
    plan: Plan,
    composer: Composer,
    requests: Sequence[Request],
) -> tuple[Finding, ...]:
    """Adds changes whose plans are clean to the hints of the findings on a failed server of ``plan``.

    ``requests`` are those that made the plan."""
    if diagnosis is None:
        return tuple(findings)
    from sglang_hydra.run.diagnose.remedy import with_plan

    better = with_plan(diagnosis, plan, composer, requests).finding
    return tuple(better if finding == diagnosis.finding else finding for finding in findings)


def diagnosis_of(log: Path, exit_code: int | None) -> Diagnosis | None:
    """Diagnoses a server that somebody else ran, by its log; None for an unknown failure."""
    from sglang_hydra.run.diagnose.diagnosis import diagnose

    found = diagnose((line.decode("utf-8", "replace") for line in log_lines(log)), exit_code)
    return found if found.known else None


def last_words(lines: Sequence[str]) -> str:
    """Returns the most likely reason among the lines: the last one that looks like an error, else the last one."""
    lines = [line.strip() for line in lines[-200:] if line.strip()]
    # With several ranks, srun's own last words only say that a rank ended.
    lines = [line for line in lines if not line.startswith("srun: ")] or lines
    errors = [line for line in lines if "Error" in line or "error:" in line or line.startswith("cannot run")]
    return (errors or lines or [""])[-1][:_LONGEST_QUOTE]
