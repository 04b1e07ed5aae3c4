"""Where a release's answer to a question comes from: recorded, kept, its wheel, an installed copy, or nowhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.facts.trust import may_start
from sglang_hydra.releases.order import same_release
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.words import program
from sglang_hydra.upstream.answers import kept_answer_to
from sglang_hydra.upstream.case import Answer, Case
from sglang_hydra.upstream.recorded import recorded_answer
from sglang_hydra.upstream.records import Record, record_of

if TYPE_CHECKING:
    from sglang_hydra.planning.engines.planned import PlannedEngine
    from sglang_hydra.rules.resolution import Basis


_FACT = re.compile(r"\(the fact (\w+)\)")
"""How a question names the fact that would have answered it."""


class NoAnswer(NamedTuple):
    """Why a release was not asked, in a clause, and what to type."""

    why: str
    hint: str | None = None


class Answered(NamedTuple):
    """An answer, and whether it was recorded."""

    answer: Answer
    basis: Basis


def answer_to(
    case: Case, engine: PlannedEngine, *, may_fetch: bool, may_ask: bool = True, why: bool = True
) -> Answered | NoAnswer:
    """What the engine's release makes of a case. Its wheels are fetched only where they ``may_fetch`` be and the
    program allows it; unless it ``may_ask``, only recorded answers count. Of a refusal the message is not recorded, so
    that wheels that are here are asked for it. Without ``why`` an answer may come without its reasons."""
    record = record_of(engine.version)
    if record is None:
        trust = f"{program()} release fetch --trust {engine.version}"
        return NoAnswer(f"SGLang {engine.version} is not recorded", trust)
    recorded = recorded_answer(record, case)
    if recorded is not None and (recorded.ok or not may_ask or not _has_wheels(record)):
        return Answered(recorded, "recorded")
    if not may_ask:
        return NoAnswer("its answer is not recorded", "--exact asks its wheel")
    found = kept_answer_to(record, case, why=why) or _asked_now(case, engine, record, may_fetch=may_fetch, why=why)
    if isinstance(found, NoAnswer):
        return found
    if found.ok is None:
        fact = _FACT.search(str(found.unanswered))
        hint = f"engine.facts.{fact[1]}=..." if fact else None
        return NoAnswer(f"SGLang {engine.version} asks for a fact that the plan has not: {found.unanswered}", hint)
    return Answered(found, "exact")


def _has_wheels(record: Record) -> bool:
    from sglang_hydra.upstream import wheels

    return not wheels.missing(record)


def _asked_now(case: Case, engine: PlannedEngine, record: Record, *, may_fetch: bool, why: bool) -> Answer | NoAnswer:
    from sglang_hydra.upstream import wheels
    from sglang_hydra.upstream.fetching import progress_if_allowed
    from sglang_hydra.upstream.release import ask_installed, ask_release

    missing = wheels.missing(record)
    is_installed = engine.installed is not None and same_release(engine.installed, record.version)
    if missing and is_installed and engine.program is not None and may_start(engine.program):
        return ask_installed(engine.program, record.version, [case], why=why)[0]
    if missing and may_fetch and (progress := progress_if_allowed()) is not None:
        try:
            wheels.fetch(record, progress)
        except MachineError as failure:
            finding = failure.findings[0]
            return NoAnswer(finding.message, finding.hint)
    elif missing:
        return NoAnswer(
            f"its wheel is not here ({wheels.download_size(record) / 2**20:.0f} MiB to fetch)",
            f"{program()} release fetch {record.version}",
        )
    return ask_release(record.version, [case], why=why)[0]
