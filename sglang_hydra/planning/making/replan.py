"""Tries the remedies of findings: plans each one first, and shows it only where it helps."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request, named_by
from sglang_hydra.planning.making.composed import plan_once
from sglang_hydra.planning.plan import Plan, Recorded
from sglang_hydra.releases.fetching import nothing_fetched
from sglang_hydra.text.errors import SglangHydraError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.words import program

PlanWith = Callable[[Sequence[str]], "Sequence[Finding] | None"]
"""Returns the findings of the plan with these overrides typed in place; None where it cannot be planned."""

_MOST_TRIED = 8
_MOST_VALUES = 2
_RANK = {"error": 2, "warning": 1, "info": 0}


@dataclass(frozen=True, repr=False, eq=False)
class Replanner:
    """The inputs of a plan, enough to make it again with other overrides."""

    composer: Composer
    requests: Sequence[Request]
    seed: int | None = None
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    recorded: Recorded | None = None

    def plan(self, composition: Composition, *, with_remedies: bool) -> Plan:
        """Plans the composition of the requests; does not plan its offers."""
        return plan_once(
            self.composer,
            self.requests,
            composition,
            seed=self.seed,
            env=self.env,
            recorded=self.recorded,
            with_remedies=with_remedies,
        )

    def findings_with(self, words: Sequence[str]) -> Sequence[Finding] | None:
        """Returns the findings of the plan with these overrides typed in place; None where it cannot be composed."""
        other = replace(self, requests=typed_in_place(self.composer, self.requests, words))
        try:
            with nothing_fetched():  # an offer may name any release
                return other.plan(self.composer.compose(other.requests), with_remedies=False).findings
        except SglangHydraError:
            return None

    def with_helpful_offers(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Returns the findings of the plan, only with offers that help."""
        if not any(finding.offers for finding in findings):
            return tuple(findings)
        planned = with_planned_offers(findings, self.findings_with)
        return tuple(as_app_types_it(self.composer, finding) for finding in planned)

    def with_valid_values(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Returns findings on overrides that cannot be composed, with values that add no error to the plan of the
        others."""
        wrong = {name for finding in findings for name in finding.fields}
        rest = replace(self, requests=without(self.requests, wrong))
        before = rest.findings_with(())
        planned = with_planned_offers(findings, rest.findings_with, before or (), most=_MOST_VALUES)
        shown = (as_app_types_it(self.composer, finding) for finding in planned)
        about = f"{program()} --help {{}} says what it takes"
        return tuple(one if one.hint or not one.fields else one.said(about.format(one.fields[0])) for one in shown)


def planned(made_from: Replanner, composition: Composition, with_remedies: bool = True) -> Plan:
    """Plans the composition of its requests. Without remedies, offers stay untried."""
    plan = made_from.plan(composition, with_remedies=with_remedies)
    return replace(plan, findings=made_from.with_helpful_offers(plan.findings)) if with_remedies else plan


def with_planned_offers(
    findings: Sequence[Finding], plan_with: PlanWith, before: Sequence[Finding] | None = None, most: int = 3
) -> tuple[Finding, ...]:
    """Returns ``findings`` with those of their offers that help, as planned remedies.

    An offer helps where the finding is gone and no error is there that was not ``before`` (by default: among the
    findings). One that brings a new warning is named only where all do but choices, and not more than ``most`` are."""
    known = findings if before is None else before
    return tuple(_with_offers(finding, plan_with, known, most) if finding.offers else finding for finding in findings)


def _with_offers(finding: Finding, plan_with: PlanWith, before: Sequence[Finding], most: int) -> Finding:
    works: list[tuple[int, Remedy]] = []
    for offer in finding.offers[:_MOST_TRIED]:
        gone = [f"~{offer.instead_of}"] if offer.instead_of else []
        after = plan_with([*gone, *offer.words])
        least = _RANK[finding.level]
        is_left = after is None or any(one.id == finding.id and _RANK[one.level] >= least for one in after)
        if after is not None and not is_left and not _new(before, after, "error"):
            works.append((len(_new(before, after, "warning")), offer))
        if sum(not warnings for warnings, _ in works) == most:
            break
    own = [warnings for warnings, offer in works if not offer.choice]  # a choice replaces none of these
    fewest = min(own or [warnings for warnings, _ in works], default=0)
    helps = [offer._replace(kind="planned") for warnings, offer in works if warnings <= fewest][:most]
    return finding.said([*helps, *(remedy for remedy in finding.remedies if remedy not in finding.offers)])


def _new(before: Sequence[Finding], after: Sequence[Finding], level: str) -> set[str]:
    """Returns the ids that reach ``level`` only now."""
    least = _RANK[level]
    known = {finding.id for finding in before if _RANK[finding.level] >= least}
    return {finding.id for finding in after if _RANK[finding.level] >= least} - known


def typed_in_place(composer: Composer, requests: Sequence[Request], words: Sequence[str]) -> list[Request]:
    """Returns ``requests`` with each of these overrides in place of the typed one for its key, others at the end;
    ``~KEY`` removes those of a key."""
    requests = without(requests, {word[1:] for word in words if word.startswith("~")})
    left = {named_by(word).partition("@")[0]: word for word in words if not word.startswith("~")}
    if composer.hydra_syntax:
        groups = composer.groups()
        typed = [Request(word, "a hint", key=None if name in groups else name) for name, word in left.items()]
        return [*requests, *(item._replace(key=None) for item in map(composer.spelled, typed) if item is not None)]
    made, placed = [], set()
    for request in requests:
        key = key_of(request)
        if key not in left:
            made.append(request)
        elif request.is_word and key not in placed:
            made.append(request._replace(text=left[key], key=None, value=None, words=()))
            placed.add(key)
    return [*made, *(Request(word, "a hint") for key, word in left.items() if key not in placed)]


def without(requests: Sequence[Request], keys: set[str]) -> list[Request]:
    """Returns ``requests`` without those for these keys, also below our tree's node in an app."""
    named = [(request, key_of(request)) for request in requests]
    return [request for request, key in named if key not in keys and key.rpartition(".")[2] not in keys]


def as_app_types_it(composer: Composer, finding: Finding) -> Finding:
    """Returns ``finding`` with its planned overrides below our tree's node in an app."""
    if not composer.hydra_syntax or not composer.mount or not finding.offers:
        return finding
    typed = {one: [item.text for item in typed_in_place(composer, [], one.words)] for one in finding.offers}
    return finding.said(
        [one._replace(said=shlex.join(typed[one])) if one in typed else one for one in finding.remedies]
    )


def key_of(request: Request) -> str:
    """Returns the key that a request sets, or the group whose option it chooses."""
    return request.name.partition("@")[0]
