"""Turns the evidence of a log into one verdict: the class, the confidence, and the deciding line."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

from sglang_hydra.releases.refusals import cannot_raise
from sglang_hydra.run.diagnose.cause import Cause, cause_of, nearest_release
from sglang_hydra.run.diagnose.classes import (
    LOG_LINES,
    FailureClass,
    Signature,
    Stage,
    Weight,
    classes_by_kind,
    failure_classes,
)
from sglang_hydra.run.diagnose.life import Evidence, Life, Raised
from sglang_hydra.run.diagnose.parts import named_choices
from sglang_hydra.text.json_types import JsonObject

# The confidence by weight; below ENOUGH there is no answer. Of 108 failures of 2026 that no pattern had seen, causes
# were right in 26 of 29 rows, general messages in 14 of 19, faults and effects in 33 of 40 (docs/diagnosis.md says how
# they were gathered).
_SURE = {Weight.CAUSE: 0.9, Weight.GENERAL: 0.75, Weight.FAULT: 0.7, Weight.EFFECT: 0.7, Weight.END: 0.6}
_NOT_FATAL = 0.2
_DISPUTED = 0.8
_EARLIER_LIFE = 0.25
_BY_SIGNAL_ALONE = 0.6
ENOUGH = 0.5
STOPPED = "stopped"
FAULT = "release_fault"
REFUSED = "invalid_arguments"
_BOTH, _ONE = 0.75, 0.6
# Python raises these itself, without a raise statement.
_PYTHONS = re.compile(
    r"(?:Type|Attribute|Key|Index|Name|UnboundLocal|ZeroDivision|Recursion|Import|ModuleNotFound)Error\b|struct\.error"
)
_REFUSES = re.compile(r"support|compatible")
_CONSEQUENCES = frozenset(LOG_LINES["consequences"])
_SECONDS = len("2026-06-11 08:15:11")


class Classification(NamedTuple):
    """A class with its confidence. ``found`` is the deciding evidence, None when only the exit code decides, or
    nothing. ``also`` is the evidence for other classes, strongest first. ``cause`` is the place in SGLang's code."""

    failure: FailureClass | None
    confidence: float
    found: Evidence | None = None
    signal: int | None = None
    also: tuple[Evidence, ...] = ()
    cause: Cause | None = None


def decide(lives: Sequence[Life], exit_code: int | None = None) -> Classification:
    """Returns the verdict on the last life with evidence, else by the exit code alone.

    A server that became ready and failed no more is healthy: earlier lives are then ignored."""
    number = signal_of(exit_code)
    for age, life in enumerate(reversed(lives)):
        ranked = _ranked([found for found in life.evidence.values() if not _is_no_failure(found, life, exit_code)])
        if ranked:
            first = ranked[0]
            fatal = first.fatal or life.ended or exit_code not in (None, 0) or not life.ready
            sure = _SURE[first.weight] - (0.0 if fatal else _NOT_FATAL)
            if any(_disputes(other, first) for other in ranked[1:]):
                sure = min(sure, _DISPUTED)
            confidence = round(max(0.0, sure - _EARLIER_LIFE * min(age, 1)), 2)
            if confidence >= ENOUGH:
                return Classification(first.failure, confidence, first, number, tuple(ranked[1:]))
        if life.ready:
            break
    # SIGKILL proves nothing after SGLang killed its own processes.
    proves = not (number == signal.SIGKILL and lives[-1].quit)
    failure = next((each for each in failure_classes() if number in each.signals and proves), None)
    return Classification(failure, _BY_SIGNAL_ALONE if failure else 0.0, signal=number)


def _ranked(evidence: list[Evidence]) -> list[Evidence]:
    """Sorts the evidence by weight, then by time. Consequences of an exception that ended a process come last, wherever
    they are in the log."""
    timed = all(found.time for found in evidence)
    fatal = [found for found in evidence if found.fatal and found.failure.kind not in _CONSEQUENCES]
    cause = min(fatal, key=lambda found: (found.time[:_SECONDS] if timed else "", found.line.number), default=None)

    def order(found: Evidence) -> tuple[bool, int, str, int]:
        follows = cause is not None and found.failure.kind in _CONSEQUENCES and not _came_before(found, cause)
        return follows, found.weight, found.time[:_SECONDS] if timed else "", found.line.number

    return sorted(evidence, key=order)


def _came_before(found: Evidence, cause: Evidence) -> bool:
    """Returns whether evidence is older than an exception: by their times, else by the line numbers of one writer."""
    if found.time and cause.time:
        return found.time[:_SECONDS] < cause.time[:_SECONDS]
    one_writer = (found.line.stream, found.line.rank) == (cause.line.stream, cause.line.rank)
    return one_writer and found.line.number < cause.line.number


def signal_of(exit_code: int | None) -> int | None:
    """Returns the signal that ended a process, from Python's exit code (-9) or a shell's (137); None for no signal."""
    number = 0 if exit_code is None else -exit_code if exit_code < 0 else exit_code - 128
    return number if 0 < number <= signal.NSIG else None


def _is_no_failure(found: Evidence, life: Life, exit_code: int | None) -> bool:
    """Returns whether evidence is SGLang's own SIGKILL, a failure that the server survived, or a stop on request."""
    if found.weight == Weight.END and life.quit and 9 in found.failure.signals:
        return True
    if found.signature.request and life.ready and exit_code == 0:
        return True
    return exit_code is None and found.failure.kind == STOPPED and found.weight >= Weight.EFFECT and life.ready


def _disputes(other: Evidence, first: Evidence) -> bool:
    """Returns whether another class has equal evidence, or an exception where the deciding line has none."""
    equal = other.weight == Weight.CAUSE
    return other.failure is not first.failure and (
        equal or (other.exception and not first.exception and other.weight <= Weight.FAULT)
    )


def judged_by_code(
    verdict: Classification, lives: Sequence[Life], version: str | None, args: JsonObject | None
) -> Classification:
    """Compares the verdict with the source of the release. Adds the place that raised the exception, uses the place's
    class when the verdict is weak, and drops a weak verdict on an exception that the release cannot raise."""
    raised, found = _decisive(verdict, lives), verdict.found
    if raised is None:
        return verdict
    release = nearest_release(version)
    cause = cause_of(raised, release, args)
    weak = verdict.failure is None or (found is not None and found.weight >= Weight.FAULT)
    kind = FAULT if cause is not None and verdict.failure is None else ""
    if cause is not None and weak:
        rooms = [*LOG_LINES["rooms"]]
        if cause.is_of_arguments:
            rooms += LOG_LINES["of_arguments"]
        elif _REFUSES.search(raised.text):  # a layer that refuses its input
            rooms += LOG_LINES["of_arguments"][:1]
        kind = next((kind for pattern, kind in rooms if re.search(pattern, cause.place)), kind)
    agrees = cause.agrees if cause is not None else ()
    by_code = cause is not None and ("message" in agrees or (raised.fatal and cause.is_of_arguments))
    if cause is None and verdict.failure is None and any(named_choices(raised.text, release)):
        kind, by_code = REFUSED, True
    if kind and by_code:
        stage, also = (found.stage, (found, *verdict.also)) if found else (Stage.UNKNOWN, verdict.also)
        failure, signature = classes_by_kind()[kind], Signature(("Error",), weight=Weight.GENERAL)
        place, frames = cause.place if cause else "", found.frames if found else ()
        evidence = Evidence(failure, signature, raised.line, stage, True, 0, raised.fatal, place, frames=frames)
        return Classification(failure, _BOTH if len(agrees) > 1 else _ONE, evidence, verdict.signal, also, cause)
    name = raised.text.partition(":")[0].rpartition(".")[2]
    weak = cause is None and weak and found is not None and not _PYTHONS.match(raised.text)
    if weak and raised.place and cannot_raise(release, name, raised.place):
        return Classification(None, 0.0, signal=verdict.signal, also=verdict.also)
    return verdict._replace(cause=cause)


def _decisive(verdict: Classification, lives: Sequence[Life]) -> Raised | None:
    """Returns the exception behind the verdict. Without one, returns the first exception that ended a process."""
    found, last = verdict.found, lives[-1]
    if found is not None:
        everything = (raised for life in lives for raised in life.raised)
        exact = next((raised for raised in everything if raised.line.number == found.line.number), None)
        if exact is not None or found.weight < Weight.FAULT:
            return exact
    if last.ready and not (last.troubled or last.broken):
        return None
    fatal = next((raised for raised in last.raised if raised.fatal and raised.place), None)
    return fatal or (last.raised[0] if last.raised and found is None and not last.ready else None)
