"""What an installed SGLang made of a plan, held against the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sglang_hydra.planning.actual import Comparison, Difference, compare
from sglang_hydra.planning.upstream.ask import Authority, CannotAsk, ask_about
from sglang_hydra.releases.order import same_release
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan

TESTED = ("0.5.2", "0.5.23")
"""Releases whose installed packages the tests ask. Every wheel that is asked has been recorded by being asked."""


@dataclass(frozen=True)
class Verdict:
    """The word of ``authority`` on one plan.

    ``ok`` is its verdict on the command line, None where it could not be asked and ``why`` says why not; of a refusal
    ``stage`` and ``error`` are its own. ``compared`` holds its values against the plan's where it accepts. ``given``
    says which facts were the plan's and not its own.
    """

    authority: Authority
    ok: bool | None
    why: str | None = None
    stage: str | None = None
    error: str | None = None
    compared: Comparison | None = None
    given: str | None = None

    @property
    def differences(self) -> tuple[Difference, ...]:
        return self.compared.differences if self.compared else ()

    @property
    def text(self) -> str:
        """The verdict in one line."""
        where = self.authority.name if self.authority.python else "its wheel"
        who = f"SGLang {self.authority.version} ({where})"
        if self.ok is None:
            return f"{who} was not asked: {self.why}"
        given = f"; {self.given}" if self.given else ""
        if not self.ok:
            return f"{who} refuses it ({self.stage}): {self.error}{given}"
        return f"{who} accepts it" + (f": {self.compared.summary}" if self.compared else "") + given

    def findings(self, plan: Plan) -> tuple[Finding, ...]:
        """The plan's findings with this word taken in: its refusal is one of SGLang's own, and what 0.5.2 would refuse
        is only remarked on where the plan's release accepts it."""
        found = list(plan.findings)
        if self.ok is None:
            message = f"{self.text}; the values stay the plan's"
            found.append(Finding("warning", "AUT002", message))
        elif not self.ok and plan.ok:
            found.append(Finding("error", "AUT003", self.text, stage=self.stage or "check"))  # type: ignore[arg-type]
        elif self.ok and not plan.resolution.ok:
            found = [self._outvoted(finding, plan) for finding in found]
        tried = self.authority.python is None or any(same_release(self.authority.version, one) for one in TESTED)
        if self.ok is not None and not tried:
            message = f"asking SGLang {self.authority.version} has not been tried: {' and '.join(TESTED)} are tested"
            found.append(Finding("info", "AUT004", message))
        return tuple(found)

    def _outvoted(self, finding: Finding, plan: Plan) -> Finding:
        """A refusal by 0.5.2's rules, where the release itself accepts the command line."""
        refusals = {each.id: each for each in plan.resolution.findings if each.level == "error" and not each.ours}
        if finding.id not in refusals:
            return finding
        message = f"{refusals[finding.id].message} (a rule of 0.5.2; {self.authority.version} accepts it)"
        return replace(finding, level="warning", message=message)

    def to_json(self) -> dict[str, Any]:
        """Its record in a plan and in what check prints."""
        return {
            "version": self.authority.version,
            "python": self.authority.python,
            "ok": self.ok,
            "why": self.why,
            "stage": self.stage,
            "error": self.error,
            "same": self.compared.same if self.compared else None,
            "of": self.compared.of if self.compared else None,
            "given": self.given,
            "absent": list(self.compared.absent) if self.compared else [],
            "differences": [vars(item) for item in self.differences],
        }


def verdicts_on(authority: Authority, plans: Sequence[Plan]) -> list[Verdict]:
    """The release's word on each plan, in their order."""
    return [judged(authority, plan, answer) for plan, answer in zip(plans, ask_about(authority, plans), strict=True)]


def judged(authority: Authority, plan: Plan, answer: Mapping[str, Any] | CannotAsk) -> Verdict:
    """One answer of ``ask_about`` as a verdict."""
    if isinstance(answer, CannotAsk):
        return Verdict(authority, None, why=str(answer))
    given = _given(plan, read=bool(answer.get("read")))
    if not answer["ok"]:
        return Verdict(authority, False, stage=str(answer["stage"]), error=str(answer["error"]), given=given)
    # It was asked without the key, which it has nothing to decide about.
    known = {**answer["values"], "api_key": plan.values["api_key"], "version": authority.version}
    return Verdict(authority, True, compared=compare(plan, known), given=given)


def _given(plan: Plan, *, read: bool) -> str:
    """Which facts the release was given, and which it read itself."""
    model = plan.values["model_path"]
    if read:
        return f"it read {model}/config.json itself, and was given the plan's facts of {plan.gpu.name}"
    return f"it was given the plan's facts of {plan.gpu.name} and of {model} ({plan.model.source})"


def asked(authority: Authority, plans: Sequence[Plan]) -> list[Plan]:
    """The plans with the release's word on each."""
    return [
        replace(plan, authority=verdict, findings=verdict.findings(plan))
        for plan, verdict in zip(plans, verdicts_on(authority, plans), strict=True)
    ]
