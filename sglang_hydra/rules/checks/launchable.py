"""Lists the checks that only this package makes, in one order: SGLang accepts these values, and the server then
fails."""

from __future__ import annotations

from sglang_hydra.rules.checks import (
    api,
    attention_at_load,
    ineffective,
    kernels_at_load,
    model_config,
    nodes,
    ranges,
    weights_at_load,
)
from sglang_hydra.rules.checks.releases import answer_of, declarations
from sglang_hydra.rules.resolution import UNCOMPUTABLE, Resolution, finding_of, uncomputable
from sglang_hydra.rules.rule import Facts, Rule
from sglang_hydra.text.findings import Finding

_MODULES = (api, attention_at_load, ineffective, kernels_at_load, model_config, nodes, ranges, weights_at_load)
_CHECKS = {check.id: check for module in _MODULES for check in vars(module).values() if isinstance(check, Rule)}
PLAN_CHECKS: tuple[Rule, ...] = tuple(_CHECKS[id] for id in declarations())
"""The checks in the order of releases.json."""


def run_plan_checks(resolution: Resolution, facts: Facts) -> list[Finding]:
    """Returns the findings of our checks for the release of ``facts``, on its resolved values. After SGLang's own
    refusal some values may not be final: a check that fails on them then reports nothing."""
    findings: list[Finding] = []
    for check in PLAN_CHECKS:
        try:
            outcome = answer_of(check, resolution.values, facts, resolution)
        except UNCOMPUTABLE as failure:
            if resolution.ok:
                findings.append(uncomputable(check, failure, resolution.intent))
            continue
        if outcome is not None:
            findings.append(finding_of(outcome, check))
    return findings
