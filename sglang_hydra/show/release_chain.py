"""Shows what a release's own code did to an argument: each change, its place, the conditions and their operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sglang_hydra.arguments.tables.successors import name_in
from sglang_hydra.planning.comparing.installed import case_of
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.asking import with_all_reasons
from sglang_hydra.releases.reasons import Quote, quote
from sglang_hydra.rules.answer import Answer, Change, Step
from sglang_hydra.text.screen import Line, folded, room, shown, text


def chain_lines(name: str, plan: Plan) -> list[Line]:
    """The chain under a title; SGLang's own words only where the wheel is here. Nothing for the release whose rules
    have pages of their own, and for other engines."""
    if plan.release.is_by_rules:
        return []
    version, answer = plan.engine.version, _answer(plan)
    lines: list[Line] = [[text(f"By the code of SGLang {version}", "bold")]]
    if answer is None:
        return [*lines, *folded([text(f"  not asked: {plan.resolution.not_asked}", "dim")], room()), []]
    changes = _changes(name, answer, version)
    for change in changes:
        lines.append([text(f"  {shown(change.before, width=24)} -> {shown(change.after)}", "yellow")])
        if change.step is None:
            lines.append([text("    by a statement that was not seen", "dim")])
        else:
            lines += _step(change.step, version, "    ")
    if not changes and answer.error is None:
        lines.append([text("  it changes nothing: the value is what was given, or the default", "dim")])
    if answer.error is not None:
        lines += folded([text(f"  it refuses: {answer.error}", "bold red")], room())
    if answer.check is not None:
        lines += _step(answer.check, version, "    ")
    return [*lines, []]


def chain_record(name: str, plan: Plan) -> dict[str, object] | None:
    """The same for ``--json``."""
    if plan.release.is_by_rules:
        return None
    version, answer = plan.engine.version, _answer(plan)
    return {
        "version": version,
        "why_not": None if answer else plan.resolution.not_asked,
        "changes": [
            {
                "before": change.before,
                "after": change.after,
                "step": _step_record(change.step, version) if change.step else None,
            }
            for change in (_changes(name, answer, version) if answer else ())
        ],
        "error": answer.error if answer else None,
        "check": _step_record(answer.check, version) if answer and answer.check else None,
    }


def _answer(plan: Plan) -> Answer | None:
    answer, version = plan.resolution.answer, plan.engine.version
    is_recorded = answer is not None and plan.resolution.basis == "recorded"
    return with_all_reasons(answer, case_of(plan, version), version) if answer and is_recorded else answer


def _changes(name: str, answer: Answer, version: str) -> list[Change]:
    """What the release did to an argument, under its name in any release, in its order."""
    own = name_in(name, version)
    return [change for change in answer.changes if change.field == own]


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


def _operands(operands: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {shown(value)}" for name, value in operands.items())


def _step_record(step: Step, version: str) -> dict[str, object]:
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


def _quote_record(quoted: Quote) -> dict[str, object]:
    return {
        "statement": quoted.statement,
        "conditions": list(quoted.conditions),
        "comment": quoted.comment,
    }
