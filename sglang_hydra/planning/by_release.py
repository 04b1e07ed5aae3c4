"""A plan's values by its release: 0.5.2's by our own rules, another one's by its own code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sglang_hydra.rules.resolution import Resolution, resolve

if TYPE_CHECKING:
    from sglang_hydra.planning.target import Target
    from sglang_hydra.rules.rule import Facts


def resolved(target: Target, *, may_fetch: bool = True, may_ask: bool = True, why: bool = True) -> Resolution:
    """What the target's release makes of what was given, on its GPU and its model. Where ``may_fetch``, a release that
    the user typed is fetched; unless it ``may_ask``, only recorded answers count; without ``why`` it is asked for no
    reasons, which takes half the time."""
    facts, intent = target.facts, target.facts.given
    own = resolve(intent, gpu=facts.gpu, model=facts.model, seed=facts.seed, draw=False, env=facts.env)
    if target.engine.by_own_rules or "model_path" not in intent:
        return own
    from sglang_hydra.planning.release_resolution import of_release

    return of_release(target, own, may_fetch=may_fetch, may_ask=may_ask, why=why)


def serving(find: Callable[[str | None], Target], *, why: bool = True) -> tuple[Target, Resolution]:
    """A target with its values. ``find`` gives the one whose release, where nobody named it, is later than the one it
    is called with: where such a release refuses the arguments and the next one accepts them, the next one is taken."""
    target = find(None)
    found = resolved(target, why=why)
    if target.engine.first_of is None or found.answer is None or found.answer.ok:
        return target, found
    later = find(target.engine.version)
    again = resolved(later, why=why) if later.engine.first_of is not None else found
    return (target, found) if again.answer is None or not again.answer.ok else (later, again)


def resolver(target: Target) -> Callable[[Facts], Resolution]:
    """The same for other facts and arguments; it fetches nothing and asks for no reasons."""
    return lambda facts: resolved(replace(target, facts=facts), may_fetch=False, why=False)
