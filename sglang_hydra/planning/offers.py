"""Tries the offers of findings: each is planned first, and shown only where that plan is better."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sglang_hydra.compose.overrides import Request
from sglang_hydra.text.findings import Finding, Offer

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composer

PlanWith = Callable[[Sequence[str]], "Sequence[Finding] | None"]
"""The findings of the plan with these overrides typed in place; None where nothing can be planned."""

_MOST_TRIED = 8
_RANK = {"error": 2, "warning": 1, "info": 0}


def with_planned_offers(
    findings: Sequence[Finding], plan_with: PlanWith, before: Sequence[Finding] | None = None, most: int = 3
) -> tuple[Finding, ...]:
    """``findings`` with the offers that help, also written into their hints.

    An offer helps where the finding is gone and no error is there that was not ``before`` (by default: among the
    findings). One that brings a new warning is named only where all do, and not more than ``most`` are.
    """
    known = findings if before is None else before
    return tuple(_with_offers(finding, plan_with, known, most) if finding.offers else finding for finding in findings)


def typed_in_place(composer: Composer, requests: Sequence[Request], words: Sequence[str]) -> list[Request]:
    """``requests`` with these overrides in place of those for the same keys."""
    groups = composer.groups()
    typed = [Request(word, "a hint", key=None if _key(word) in groups else _key(word)) for word in words]
    if composer.hydra_syntax:
        return [*requests, *(replace(item, key=None) for item in map(composer.spelled, typed) if item is not None)]
    return [*without(requests, {_key(word) for word in words}), *(replace(item, key=None) for item in typed)]


def as_app_types_it(composer: Composer, finding: Finding) -> Finding:
    """``finding`` with the offers in its hint below the node that our tree stands under in an app."""
    if not composer.hydra_syntax or not composer.mount or not finding.hint:
        return finding
    shown = {f"{offer.typed}{offer.note}": offer for offer in finding.offers}
    spelled = [
        shlex.join(item.text for item in typed_in_place(composer, [], shlex.split(offer.typed))) + offer.note
        if (offer := shown.get(alternative)) is not None
        else alternative
        for alternative in finding.hint.split("; or ")
    ]
    return replace(finding, hint="; or ".join(spelled))


def without(requests: Sequence[Request], keys: set[str]) -> list[Request]:
    """``requests`` without those for one of the keys, also below the node that our tree stands under in an app."""
    named = [(request, request.key or _key(request.text)) for request in requests]
    return [request for request, key in named if key not in keys and key.rpartition(".")[2] not in keys]


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~").partition("@")[0]


def _with_offers(finding: Finding, plan_with: PlanWith, before: Sequence[Finding], most: int) -> Finding:
    works: list[tuple[int, Offer]] = []
    for offer in finding.offers[:_MOST_TRIED]:
        after = plan_with(shlex.split(offer.typed))
        if after is not None and _is_gone(finding, after) and not _new(before, after, "error"):
            works.append((len(_new(before, after, "warning")), offer))
        if sum(not warnings for warnings, _ in works) == most:
            break
    fewest = min((warnings for warnings, _ in works), default=0)
    named = tuple(offer for warnings, offer in works if warnings == fewest)[:most]
    return replace(finding, offers=named, hint="; or ".join(_texts(named, finding.hint)) or None)


def _texts(offers: Sequence[Offer], hint: str | None) -> Iterator[str]:
    yield from (f"{offer.typed}{offer.note}" for offer in offers)
    if hint:
        yield hint


def _is_gone(finding: Finding, after: Sequence[Finding]) -> bool:
    return not any(other.id == finding.id and _RANK[other.level] >= _RANK[finding.level] for other in after)


def _new(before: Sequence[Finding], after: Sequence[Finding], level: str) -> set[str]:
    """The ids that have ``level`` only now, or had a lower one."""
    least = _RANK[level]
    known = {finding.id for finding in before if _RANK[finding.level] >= least}
    return {finding.id for finding in after if _RANK[finding.level] >= least} - known
