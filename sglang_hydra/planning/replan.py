"""Plans made with other overrides, to show only the offers of a finding that help."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.composed import plan_once
from sglang_hydra.planning.plan import Plan, Recorded
from sglang_hydra.text.errors import SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import program

_MOST_VALUES = 2


@dataclass(frozen=True)
class Replanner:
    """What a plan was made from: all that is needed to make it with other overrides."""

    composer: Composer
    requests: Sequence[Request]
    seed: int | None
    env: Mapping[str, str]
    recorded: Recorded | None

    def findings_with(self, words: Sequence[str]) -> Sequence[Finding] | None:
        """Those of the plan with these overrides typed in place; None where it cannot be composed."""
        from sglang_hydra.planning.offers import typed_in_place

        requests = typed_in_place(self.composer, self.requests, words)
        try:
            plan = plan_once(
                self.composer,
                requests,
                self.composer.compose(requests),
                seed=self.seed,
                env=self.env,
                recorded=self.recorded,
                with_remedies=False,
            )
        except SglangHydraError:
            return None
        return plan.findings

    def with_helpful_offers(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings of the plan, with only the offers that help."""
        if not any(finding.offers for finding in findings):
            return tuple(findings)
        from sglang_hydra.planning.offers import as_app_types_it, with_planned_offers

        planned = with_planned_offers(findings, self.findings_with)
        return tuple(as_app_types_it(self.composer, finding) for finding in planned)

    def with_valid_values(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Findings on overrides that cannot be composed, with values that add no error to the plan of the others."""
        from sglang_hydra.planning.offers import as_app_types_it, with_planned_offers, without

        wrong = {name for finding in findings for name in finding.fields}
        rest = replace(self, requests=without(self.requests, wrong))
        before = rest.findings_with(())
        planned = with_planned_offers(findings, rest.findings_with, before or (), most=_MOST_VALUES)
        shown = (as_app_types_it(self.composer, finding) for finding in planned)
        return tuple(item if item.hint or not item.fields else _to_its_help(item) for item in shown)


def _to_its_help(finding: Finding) -> Finding:
    return replace(finding, hint=f"{program()} --help {finding.fields[0]} says what it takes")


def replanner(
    composer: Composer,
    requests: Sequence[Request],
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    recorded: Recorded | None = None,
) -> Replanner:
    """With this process's environment where none is given."""
    return Replanner(composer, requests, seed, os.environ if env is None else env, recorded)


def planned(
    composer: Composer,
    requests: Sequence[Request],
    composition: Composition,
    *,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    recorded: Recorded | None = None,
    with_remedies: bool = True,
) -> Plan:
    """The plan of what ``requests`` were composed to. Without remedies its findings keep all their offers, untried."""
    again = replanner(composer, requests, seed, env, recorded)
    plan = plan_once(
        composer,
        requests,
        composition,
        seed=again.seed,
        env=again.env,
        recorded=recorded,
        with_remedies=with_remedies,
    )
    return replace(plan, findings=again.with_helpful_offers(plan.findings)) if with_remedies else plan
