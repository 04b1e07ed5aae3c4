"""Why the release of a plan gives an argument its value: the chain of changes that its own code made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_hydra.releases.successors import name_in
from sglang_hydra.upstream.reasons import Change, Step

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan


@dataclass(frozen=True)
class Reasons:
    """What the code of ``version`` did to one argument, in its order. Of a refusal ``error`` is its text, and ``check``
    the statement that refused. Where it was not asked ``why_not`` is why."""

    version: str
    changes: tuple[Change, ...] = ()
    error: str | None = None
    check: Step | None = None
    why_not: str | None = None


def reasons_of(name: str, plan: Plan) -> Reasons | None:
    """The reasons for an argument, under its name in any release; None for the release whose rules have pages of
    their own, and for other engines."""
    made, version = plan.resolution, plan.engine.version
    if made.is_0_5_2:
        return None
    if made.answer is None:
        return Reasons(version, why_not=made.not_asked)
    own = name_in(name, version)
    changes = tuple(change for change in made.answer.changes if change.field == own)
    return Reasons(version, changes, made.answer.error, made.answer.check)
