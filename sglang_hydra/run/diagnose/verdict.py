"""Turns the evidence of a log into one verdict: the class, the confidence, and the deciding line."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sglang_hydra.run.diagnose.classes import LOG_LINES, FailureClass, Weight, failure_classes
from sglang_hydra.run.diagnose.life import Evidence, Life

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
_CONSEQUENCES = frozenset(LOG_LINES["consequences"])
_SECONDS = len("2026-06-11 08:15:11")


class Classification(NamedTuple):
    """A class with its confidence. ``found`` is the deciding evidence, None when only the exit code decides, or
    nothing. ``also`` is the evidence for other classes, strongest first."""

    failure: FailureClass | None
    confidence: float
    found: Evidence | None = None
    signal: int | None = None
    also: tuple[Evidence, ...] = ()


def decide(lives: Iterable[Life], exit_code: int | None = None) -> Classification:
    """Returns the verdict on the last life with evidence.

    A server that became ready and failed no more is healthy: earlier lives are then ignored."""
    whole = list(lives)
    number = signal_of(exit_code)
    for age, life in enumerate(reversed(whole)):
        ranked = _ranked(list(_plausible(life, exit_code)))
        if ranked:
            first = ranked[0]
            sure = _confidence(first, life, exit_code)
            if any(_disputes(other, first) for other in ranked[1:]):
                sure = min(sure, _DISPUTED)
            confidence = round(max(0.0, sure - _EARLIER_LIFE * min(age, 1)), 2)
            if confidence >= ENOUGH:
                return Classification(first.failure, confidence, first, number, tuple(ranked[1:]))
        if life.ready:
            break
    return _by_signal(whole[-1], number)


def _ranked(evidence: list[Evidence]) -> list[Evidence]:
    """Sorts the evidence by weight, then by time. Consequences of an exception that ended a process come last, wherever
    they are in the log."""
    timed = all(found.time for found in evidence)
    fatal = [found for found in evidence if found.fatal and found.failure.kind not in _CONSEQUENCES]
    cause = min(fatal, key=lambda found: (_second(found) if timed else "", found.line.number), default=None)

    def order(found: Evidence) -> tuple[bool, int, str, int]:
        follows = cause is not None and found.failure.kind in _CONSEQUENCES and not _came_before(found, cause)
        return follows, found.weight, _second(found) if timed else "", found.line.number

    return sorted(evidence, key=order)


def _second(found: Evidence) -> str:
    return found.time[:_SECONDS]


def _came_before(found: Evidence, cause: Evidence) -> bool:
    """Returns whether evidence is older than an exception: by their times, else by the line numbers of one writer."""
    if found.time and cause.time:
        return _second(found) < _second(cause)
    one_writer = (found.line.stream, found.line.rank) == (cause.line.stream, cause.line.rank)
    return one_writer and found.line.number < cause.line.number


def signal_of(exit_code: int | None) -> int | None:
    """Returns the signal that ended a process, from Python's exit code (-9) or a shell's (137); None for no signal."""
    number = 0 if exit_code is None else -exit_code if exit_code < 0 else exit_code - 128
    return number if 0 < number <= signal.NSIG else None


def _plausible(life: Life, exit_code: int | None) -> Iterator[Evidence]:
    """Yields the evidence, without the SIGKILL of SGLang itself and failures that the server survived."""
    for found in life.evidence.values():
        if found.weight == Weight.END and life.quit and 9 in found.failure.signals:
            continue
        if found.signature.request and life.ready and exit_code == 0:
            continue
        if exit_code is None and found.failure.kind == STOPPED and found.weight >= Weight.EFFECT and life.ready:
            continue  # a server that served and was asked to stop is healthy
        yield found


def _confidence(found: Evidence, life: Life, exit_code: int | None) -> float:
    sure = _SURE[found.weight]
    fatal = found.fatal or life.ended_at is not None or exit_code not in (None, 0) or not life.ready
    return sure if fatal else sure - _NOT_FATAL


def _disputes(other: Evidence, first: Evidence) -> bool:
    """Returns whether another class has equal evidence, or an exception where the deciding line has none."""
    if other.failure is first.failure:
        return False
    return other.weight == Weight.CAUSE or (other.exception and not first.exception and other.weight <= Weight.FAULT)


def _by_signal(life: Life, number: int | None) -> Classification:
    """Returns the verdict from the exit code alone. SIGKILL proves nothing after SGLang killed its own processes."""
    proves = not (number == signal.SIGKILL and life.quit)
    failure = next((each for each in failure_classes() if number in each.signals and proves), None)
    return Classification(failure, _BY_SIGNAL_ALONE if failure else 0.0, signal=number)
