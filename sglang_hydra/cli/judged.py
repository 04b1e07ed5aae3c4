"""Decides whether a judged plan is good: exit code 0 or 2 of plan, check, export and fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import what_is_missing
from sglang_hydra.text.exit_codes import INVALID
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.planning.topology.servers import Topology


def code_of(invocation: Invocation, made: Plan | Topology | None, findings: Sequence[Finding] | None = None) -> int:
    """Returns 0 if :func:`is_good`, else 2."""
    return 0 if is_good(invocation, made, findings) else INVALID


def is_good(invocation: Invocation, made: Plan | Topology | None, findings: Sequence[Finding] | None = None) -> bool:
    """Returns whether ``made`` has no error in ``findings`` (by default its own), and nothing of ``--fail-on``; with
    ``--upstream-only``, whether SGLang would accept it. False for None."""
    levels = _levels(invocation)
    if made is None:
        return False
    plans = [made] if isinstance(made, Plan) else [server.plan for server in made.servers]
    found = {finding.level for finding in (made.findings if findings is None else findings)}
    if "warning" in levels and "warning" in found:
        return False
    if "unknown" in levels and any(map(what_is_missing, plans)):
        return False
    return made.ok if invocation.has("upstream_only") else "error" not in found


def _levels(invocation: Invocation) -> set[str]:
    return set(filter(None, (invocation.value("fail_on") or "").split(",")))
