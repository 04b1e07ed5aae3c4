"""Finds the source of a release's answer: recorded, kept, its wheel, an installed copy, or none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.facts.trust import may_start
from sglang_hydra.releases.answers import kept_answer_to
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.recorded import recorded_answer
from sglang_hydra.releases.records import Record, record_of
from sglang_hydra.rules.answer import Answer
from sglang_hydra.rules.resolution import Basis
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.json_types import EMPTY
from sglang_hydra.text.words import program

_FACT = re.compile(r"\(the fact (\w+)\)")
"""The text with which a question names the missing fact."""


class Asking(NamedTuple):
    """The permitted ways to ask a release, and its inputs besides arguments, GPU and model. ``environment`` has the
    variables that the server would find, ``declared`` the facts that a person states (engine.facts). ``installed`` is
    the version on this machine, and ``program`` its interpreter. ``may_fetch`` allows fetching its wheels, ``may_ask``
    anything but recorded answers. ``why`` asks for reasons, which takes twice the time."""

    environment: Mapping[str, str] = EMPTY
    declared: Mapping[str, object] = EMPTY
    installed: str | None = None
    program: str | None = None
    may_fetch: bool = False
    may_ask: bool = True
    why: bool = True


class Answered(NamedTuple):
    """An answer, and whether it was recorded."""

    answer: Answer
    basis: Basis


class NoAnswer(NamedTuple):
    """The reason in a clause why a release was not asked, what to type, and the refusal of a part of the facts."""

    why: str
    hint: str | None = None
    refusal: Answered | None = None


def answer_to(case: Case, version: str, asking: Asking) -> Answered | NoAnswer:
    """Returns a release's answer to a case. Fetches its wheels only if the program allows that too. A recorded refusal
    has no message, so wheels that are here are asked for it."""
    record = record_of(version)
    if record is None:
        trust = f"{program()} release fetch --trust {version}"
        return NoAnswer(f"SGLang {version} is not recorded", trust)
    recorded = recorded_answer(record, case, why=asking.why or asking.may_ask)
    if recorded is not None and (recorded.ok or not asking.may_ask or not _has_wheels(record)):
        return Answered(recorded, "recorded")
    if not asking.may_ask:
        return NoAnswer("its answer is not recorded", "--exact asks its wheel")
    try:
        found = kept_answer_to(record, case, why=asking.why) or _asked_now(case, record, asking)
    except MachineError as failure:
        finding = failure.findings[0]
        if finding.about != "no_wheel":
            raise
        return NoAnswer(finding.message, finding.hint)
    if isinstance(found, NoAnswer):
        return found
    if found.ok is None:
        fact = _FACT.search(str(found.unanswered))
        hint = f"engine.facts.{fact[1]}=..." if fact else None
        return NoAnswer(f"SGLang {version} asks for a fact that the plan has not: {found.unanswered}", hint)
    return Answered(found, "exact")


def with_all_reasons(answer: Answer, case: Case, version: str) -> Answer:
    """Adds to the answer all reasons that its wheel has, if the wheel is here; a recorded answer has fewer."""
    from sglang_hydra.releases.release import ask_release

    record = record_of(version)
    if record is None or not _has_wheels(record):
        return answer
    asked = kept_answer_to(record, case) or ask_release(version, [case], why=True)[0]
    return asked if (asked.ok, asked.values) == (answer.ok, answer.values) else answer


def _has_wheels(record: Record) -> bool:
    from sglang_hydra.releases import wheels

    try:
        return not wheels.missing(record)
    except MachineError:  # only its message would be needed
        return False


def _asked_now(case: Case, record: Record, asking: Asking) -> Answer | NoAnswer:
    from sglang_hydra.releases import wheels
    from sglang_hydra.releases.fetching import ANSWER_S, progress_if_allowed
    from sglang_hydra.releases.release import ask_installed, ask_release

    missing = wheels.missing(record)
    is_installed = asking.installed is not None and same_release(asking.installed, record.version)
    if missing and is_installed and asking.program is not None and may_start(asking.program):
        return ask_installed(asking.program, record.version, [case], why=asking.why)[0]
    if missing and asking.may_fetch and (progress := progress_if_allowed()) is not None:
        wheels.fetch(record, progress, wait_s=ANSWER_S)
    elif missing:
        return NoAnswer(
            f"its wheel is not here ({sum(wheel.part for wheel in missing) / 2**20:.0f} MiB to fetch)",
            f"{program()} release fetch {record.version}",
        )
    return ask_release(record.version, [case], why=asking.why)[0]
