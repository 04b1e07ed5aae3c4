"""Resolves a plan's values: by its release, from the given arguments, its GPU and its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sglang_hydra.releases.asking import Asking
from sglang_hydra.rules.resolution import Resolution

if TYPE_CHECKING:
    from sglang_hydra.planning.making.target import Target
    from sglang_hydra.rules.rule import Facts


def resolved(target: Target, *, may_fetch: bool = True, may_ask: bool = True, why: bool = True) -> Resolution:
    """Resolves the given arguments by the target's release. ``may_fetch``: fetches a release that the user typed;
    ``may_ask`` False: uses recorded answers only; ``why`` False: asks for no reasons, which takes half the time."""
    composition, engine = target.composition, target.engine
    named = composition.settings.get("engine.version")
    asking = Asking(
        environment={**target.inherited, **target.environment},
        declared=composition.nodes.engine.facts,
        installed=engine.installed,
        program=engine.program if engine.name == "sglang" else None,
        may_fetch=may_fetch and (engine.installed is None if named is None else named.layer == "cli"),
        may_ask=may_ask,
        why=why,
    )
    return engine.provider.resolve(target.facts, asking)


def serving(find: Callable[[str | None], Target], *, why: bool = True) -> tuple[Target, Resolution]:
    """Returns a target with its values. ``find`` makes it for the named release, or for the newest where none is named;
    it is called with an older one where the newest refuses a case that a recorded answer of the older one accepts."""
    target = find(None)
    found = resolved(target, why=why)
    if not target.is_open or found.answer is None or found.answer.ok:
        return target, found
    from sglang_hydra.releases.recorded import recorded_releases
    from sglang_hydra.releases.records import records

    for version in (known for known in reversed([*records()]) if known in recorded_releases()):
        older = find(version)
        if any(one.level == "error" for one in older.engine.provider.accept(older.facts.given).findings):
            continue  # its command line refuses what the newest release takes
        again = resolved(older, may_fetch=False, may_ask=False)
        if again.answer is not None and again.answer.ok:
            return older, again
    return target, found


def resolver(target: Target) -> Callable[[Facts], Resolution]:
    """Returns a function that resolves other facts and arguments; it fetches nothing and asks for no reasons."""
    return lambda facts: resolved(target._replace(facts=facts), may_fetch=False, why=False)
