"""A verdict by the release's own code: the class follows from the place that raised, and from what it asks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sglang_hydra.releases.refusals import cannot_raise
from sglang_hydra.run.diagnose.cause import Cause, cause_of, nearest_release
from sglang_hydra.run.diagnose.classes import classes_by_kind
from sglang_hydra.run.diagnose.failure_class import LOG_LINES, Signature, Stage, Weight
from sglang_hydra.run.diagnose.life import Evidence, Life, Raised
from sglang_hydra.run.diagnose.verdict import Verdict

FAULT = "release_fault"
_BOTH, _ONE = 0.75, 0.6
# What Python itself raises, where no statement of the source does.
_PYTHONS = re.compile(
    r"(?:Type|Attribute|Key|Index|Name|UnboundLocal|ZeroDivision|Recursion|Import|ModuleNotFound)Error\b|struct\.error"
)
_ROOMS, _OF_ARGUMENTS = LOG_LINES["rooms"], LOG_LINES["of_arguments"]


class Judged(NamedTuple):
    """A verdict, and the place in the code that it rests on, if any."""

    verdict: Verdict
    cause: Cause | None = None


def judged_by_code(
    verdict: Verdict, lives: Iterable[Life], version: str | None, args: Mapping[str, Any] | None
) -> Judged:
    """Returns the verdict where the release's own code agrees or says more; an exception that it cannot have raised is
    of no class."""
    raised = _decisive(verdict, list(lives))
    if raised is None:
        return Judged(verdict)
    release = nearest_release(version)
    cause = cause_of(raised, release, args)
    weak = verdict.failure is None or (verdict.found is not None and verdict.found.weight >= Weight.FAULT)
    if cause is not None and weak and (kind := _kind(cause, raised, verdict)) is not None:
        return Judged(_by_room(kind, cause, raised, verdict), cause)
    if cause is None and weak and verdict.found is not None and _is_unheard_of(raised, release):
        return Judged(Verdict(None, 0.0, signal=verdict.signal, also=verdict.also))
    return Judged(verdict, cause)


def _decisive(verdict: Verdict, lives: list[Life]) -> Raised | None:
    """Returns the exception that the verdict rests on; where it rests on none, the first that ended a process."""
    found = verdict.found
    everything = [raised for life in lives for raised in life.raised]
    if found is not None:
        exact = next((raised for raised in everything if raised.line.number == found.line.number), None)
        if exact is not None or found.weight < Weight.FAULT:
            return exact
    last = lives[-1]
    if last.ready and not (last.troubled or last.broken):
        return None
    fatal = next((raised for raised in last.raised if raised.fatal and raised.place), None)
    return fatal or (last.raised[0] if last.raised and found is None and not last.ready else None)


def _kind(cause: Cause, raised: Raised, verdict: Verdict) -> str | None:
    """Returns the class of a refusal; None where the place says no more than the verdict does."""
    agrees = "message" in cause.found[0].agrees
    if not (agrees or (raised.fatal and cause.is_of_arguments)):
        return None
    rooms = (*_ROOMS, *_OF_ARGUMENTS) if cause.is_of_arguments else _ROOMS
    kind = next((kind for pattern, kind in rooms if re.search(pattern, cause.place)), None)
    return kind or (FAULT if verdict.failure is None else None)


def _by_room(kind: str, cause: Cause, raised: Raised, verdict: Verdict) -> Verdict:
    sure = _BOTH if len(cause.found[0].agrees) > 1 else _ONE
    found = verdict.found
    stage, work, exception = (found.stage, found.work, found.exception) if found else (Stage.UNKNOWN, 0, True)
    signature = Signature(("Error",), weight=Weight.GENERAL)
    failure = classes_by_kind()[kind]
    evidence = Evidence(failure, signature, raised.line, stage, exception, work, raised.fatal, cause.place)
    also = (*((found,) if found is not None else ()), *verdict.also)
    return Verdict(failure, sure, evidence, verdict.signal, also)


def _is_unheard_of(raised: Raised, release: str | None) -> bool:
    """Returns whether no statement of the file that an exception names can have raised it, nor Python."""
    kind = raised.text.partition(":")[0].rpartition(".")[2]
    return raised.place is not None and not _PYTHONS.match(raised.text) and cannot_raise(release, kind, raised.place)
