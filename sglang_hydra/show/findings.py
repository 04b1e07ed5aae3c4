"""Shows findings: errors first, with the origins of their arguments and the fix."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.arguments.secrets import HIDDEN, is_secret
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.origins import Origin
from sglang_hydra.text.screen import Line, folded, shown, text
from sglang_hydra.text.words import program

_LEVEL_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}


_COMMANDS = ("sglang-hydra ", "python ", "pip ", "export ", "make ", "mkdir ")
_LEVEL_ORDER = {"error": 0, "warning": 1, "info": 2}


def finding_lines(findings: Sequence[Finding], plan: Plan | None = None) -> list[Line]:
    """Returns the findings, errors first, each with the origins of its arguments and its remedies."""
    if not findings:
        return []
    lines: list[Line] = [[text("Findings", "bold")]]
    for finding in sorted(findings, key=lambda item: _LEVEL_ORDER[item.level]):
        head = [text("  "), text(finding.level, _LEVEL_STYLE[finding.level]), text(f" {finding.id}  ", "bold")]
        lines += folded([*head, text(finding.message)])
        for who in setters_of(finding, plan) if plan else ():
            lines += folded([text("      "), text(who, "dim")])
        # One remedy after the other. A command is not broken into lines, so that it can be copied.
        for rank, remedy in enumerate(map(str, finding.shown)):
            line = [text("        or: " if rank else "      hint: ", "dim"), text(remedy, "green")]
            lines += [line] if remedy.startswith((program(), *_COMMANDS)) else folded(line)
    lines.append([])
    return lines


def setters_of(finding: Finding, plan: Plan) -> list[str]:
    """Returns a sentence on the origin of each argument of a finding that is not at its default."""
    return [who for name in finding.fields if (who := _who_set(name, finding, plan))]


def _who_set(name: str, finding: Finding, plan: Plan) -> str | None:
    """Returns the origin of the value that a finding is about; None for a default."""
    chain, written = plan.origins.get(name, ()), plan.resolution.ledger.of(name)
    by_rule = ""
    if written and written[-1].rule != finding.id:
        last = written[-1]
        by_rule = f"{name}={shown_setting(name, last.after)} comes from {last.rule} ({last.reason})"
    if not chain or plan.intent.get(name) is None:
        return by_rule or None
    return f"{name}={shown_setting(name, plan.intent[name])} was set by {shown_origin(chain[-1])}" + (
        f"; {by_rule}" if by_rule else ""
    )


def shown_setting(name: str, value: object, width: int = 60) -> str:
    return HIDDEN if value is not None and is_secret(name, value) else shown(value, width=width)


def shown_origin(origin: Origin) -> str:
    return origin.place or origin.layer
