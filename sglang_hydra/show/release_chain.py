"""Shows what a release's own code did to an argument: each change, its place, the conditions and their operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglang_hydra.planning.upstream.reasons import Reasons
from sglang_hydra.text.screen import Line, folded, room, shown, text
from sglang_hydra.upstream.reasons import Quote, Step, quote


def chain_lines(reasons: Reasons | None) -> list[Line]:
    """The chain under a title; SGLang's own words only where the wheel is here. Nothing without reasons."""
    if reasons is None:
        return []
    lines: list[Line] = [[text(f"By the code of SGLang {reasons.version}", "bold")]]
    if reasons.why_not is not None:
        return [*lines, *folded([text(f"  not asked: {reasons.why_not}", "dim")], room()), []]
    for change in reasons.changes:
        lines.append([text(f"  {shown(change.before, width=24)} -> {shown(change.after)}", "yellow")])
        if change.step is None:
            lines.append([text("    by a statement that was not seen", "dim")])
        else:
            lines += _step(change.step, reasons.version, "    ")
    if not reasons.changes and reasons.error is None:
        lines.append([text("  it changes nothing: the value is what was given, or the default", "dim")])
    if reasons.error is not None:
        lines += folded([text(f"  it refuses: {reasons.error}", "bold red")], room())
    if reasons.check is not None:
        lines += _step(reasons.check, reasons.version, "    ")
    return [*lines, []]


def chain_record(reasons: Reasons | None) -> dict[str, Any] | None:
    """The same for ``--json``."""
    if reasons is None:
        return None
    return {
        "version": reasons.version,
        "why_not": reasons.why_not,
        "changes": [
            {
                "before": change.before,
                "after": change.after,
                "step": _step_record(change.step, reasons.version) if change.step else None,
            }
            for change in reasons.changes
        ],
        "error": reasons.error,
        "check": _step_record(reasons.check, reasons.version) if reasons.check else None,
    }


def _step(step: Step, version: str, indent: str, above: str = "") -> Iterator[Line]:
    quoted = quote(version, step)
    yield [text(f"{indent}{step.place}", "cyan"), text(f"  {step.function}", "dim")]
    inner = f"{indent}  "
    if quoted and quoted.statement:
        yield from _wrapped(f"{inner}{quoted.statement}", "")
    if step.inputs:
        yield from _wrapped(f"{inner}with {_operands(step.inputs)}", "")
    for at, condition in enumerate(step.conditions):
        where = f"{quoted.conditions[at]} (line {condition.line})" if quoted else f"line {condition.line}"
        held = "if" if condition.holds else "not if"
        operands = f": {_operands(condition.operands)}" if condition.operands else ""
        yield from _wrapped(f"{inner}{held} {where}{operands}", "")
    comment = quoted.comment if quoted else ""
    if comment and comment != above:
        yield from _wrapped(f'{inner}"{comment}"', "dim")
    if step.via:
        yield [text(f"{inner}the value comes from", "dim")]
    for other in step.via:
        yield from _step(other, version, f"{inner}  ", comment)


def _wrapped(content: str, style: str) -> list[Line]:
    return folded([text(content, style)], room())


def _operands(operands: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {shown(value)}" for name, value in operands.items())


def _step_record(step: Step, version: str) -> dict[str, Any]:
    quoted = quote(version, step)
    return {
        "place": step.place,
        "function": step.function,
        "inputs": dict(step.inputs),
        "conditions": [
            {"place": each.place, "holds": each.holds, "operands": dict(each.operands)} for each in step.conditions
        ],
        "via": [_step_record(other, version) for other in step.via],
        "quote": _quote_record(quoted) if quoted else None,
    }


def _quote_record(quoted: Quote) -> dict[str, Any]:
    return {
        "statement": quoted.statement,
        "conditions": list(quoted.conditions),
        "comment": quoted.comment,
    }
