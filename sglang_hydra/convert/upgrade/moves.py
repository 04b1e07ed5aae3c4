"""Which resolved values move from one release to the other: each release's own answer, and why on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import at_least, same_release
from sglang_hydra.arguments.tables.table import known_versions
from sglang_hydra.planning.comparing.difference import Difference, differences, value_of
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.recorded import recorded_releases
from sglang_hydra.releases.release import can_answer
from sglang_hydra.releases.resolving import same_value
from sglang_hydra.text.errors import ConfigError


class Moves(NamedTuple):
    """Two exact resolutions: the identities of both servers, and what moves: values, variables and figures of the
    memory. ``steps`` are the releases that were asked between."""

    before_id: str
    after_id: str
    moves: tuple[Difference, ...]
    steps: tuple[str, ...] = ()


def compare(old: str, after: Plan, plan_in: Callable[[str], Plan], *, with_steps: bool = False) -> Moves | str:
    """Compares what ``old`` makes of the configuration with ``after``, its plan for the new release. Returns, in a
    clause, why that is not possible where one of them was not asked."""
    if after.engine.version == old:
        return "both are one release"
    try:
        before = plan_in(old)
    except ConfigError as failure:
        return failure.findings[0].message
    for plan in (before, after):
        if not plan.is_exact:
            return f"{plan.engine.version}: {plan.resolution.not_asked or 'it was not asked'}"
        if not plan.resolution.ok:
            return f"{plan.engine.version} refuses it"
    between = list(_between(old, after.engine.version)) if with_steps else []
    steps = [plan for plan in map(plan_in, between) if plan.is_exact and plan.resolution.ok]
    moves = tuple(_moves(before, after, steps))
    return Moves(before.server_id, after.server_id, moves, tuple(plan.engine.version for plan in steps))


def _moves(before: Plan, after: Plan, steps: Sequence[Plan]) -> Iterator[Difference]:
    for item in differences(before, after):
        if item.kind == "fact" or item.is_of_one_release:
            continue
        since = None
        if item.kind == "value" and steps:
            moved = (plan for plan in (*steps, after) if not same_value(value_of(plan, item.key), item.before))
            since = next(moved, after).engine.version
        yield replace(item, since=since)


def _between(old: str, new: str) -> Iterator[str]:
    """The releases between two that can be asked: whose answers ship, or whose wheels are here."""
    first, last = (old, new) if at_least(new, old) else (new, old)
    for version in known_versions() if first == old else reversed(known_versions()):
        inside = at_least(version, first) and at_least(last, version)
        is_end = same_release(version, old) or same_release(version, new)
        if inside and not is_end and (version in recorded_releases() or can_answer(version)):
            yield version
