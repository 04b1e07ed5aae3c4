"""What people read: the plan, one field's history, one rule's page. It renders and decides nothing."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from sglang_hydra.fields import FIELDS
from sglang_hydra.findings import Finding
from sglang_hydra.places import Origin
from sglang_hydra.plans import Plan, plain
from sglang_hydra.screen import Line, columns, printable, shown, text

_LEVEL_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_LEVEL_ORDER = {"error": 0, "warning": 1, "info": 2}


def plan_screen(plan: Plan) -> list[Line]:
    """The whole plan: what it is for, what was set and by whom, what the rules made of it, and what is wrong."""
    lines: list[Line] = [*_heading(plan), []]
    lines += _section("Set", _set_rows(plan))
    lines += _section("Resolved by SGLang's rules", _changed_rows(plan))
    lines += finding_lines(plan.findings, plan)
    if plan.launchable:
        lines += [[text("Command", "bold")], [text("  " + command_line(plan))], []]
    lines.append(summary(plan))
    return lines


def command_line(plan: Plan) -> str:
    """The launch command, shell-quoted, the environment that the plan sets in front. It holds no secret."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in plan.environment.items()]
    return printable(" ".join([*assignments, shlex.join(plan.command)]))


def summary(plan: Plan) -> Line:
    changed = {entry.field for entry in plan.resolution.ledger}
    asked = set(plan.intent)
    levels = [finding.level for finding in plan.findings]
    counts = f"{_plural(levels.count('error'), 'error')}, {_plural(levels.count('warning'), 'warning')}"
    if plan.launchable:
        verdict = text("can be launched", "bold green")
    elif plan.ok:
        verdict = text("SGLang would accept it and then fail", "bold red")
    else:
        verdict = text("SGLang would refuse it", "bold red")
    untouched = len(FIELDS) - len(changed | asked)
    head = (
        f"Plan {plan.server_id}: {len(asked)} set, {len(changed)} resolved, {untouched} at their defaults; {counts}: "
    )
    return [text(head), verdict]


def finding_lines(findings: Sequence[Finding], plan: Plan | None = None) -> list[Line]:
    """Errors first; under each who set the fields concerned and what to type."""
    if not findings:
        return []
    lines: list[Line] = [[text("Findings", "bold")]]
    for finding in sorted(findings, key=lambda item: _LEVEL_ORDER[item.level]):
        lines.append(
            [
                text("  "),
                text(finding.level, _LEVEL_STYLE[finding.level]),
                text(f" {finding.id}", "bold"),
                text(f"  {printable(finding.message)}"),
            ]
        )
        for name in finding.fields if plan else ():
            chain = plan.origins.get(name, ()) if plan else ()
            if chain:
                lines.append([text(f"      {name}={shown(chain[-1].value)} was set by {_who(chain[-1])}", "dim")])
        if finding.hint:
            lines.append([text("      type: ", "dim"), text(printable(finding.hint), "green")])
    lines.append([])
    return lines


def field_screen(name: str, plan: Plan | None) -> list[Line]:
    """Everything about one argument: what it does and, with a plan, each step to its value."""
    field = FIELDS[name]
    arg = field.arg
    value = f" = {shown(plan.values[name], width=200)}" if plan else ""
    lines: list[Line] = [[text(f"{name}{value}", "bold")]]
    lines += [[text(f"  {part}")] for part in textwrap.wrap(arg.help, 100)]
    facts = [("type", field.type), ("unit", arg.unit), ("null means", arg.none), ("flag", ", ".join(field.flags))]
    if field.arg.choices:
        facts.append(("choices", ", ".join(str(choice) for choice in field.arg.choices)))
    facts.append(("default", shown(field.default)))
    lines += columns([[text(label, "dim"), text(str(said))] for label, said in facts if said])
    if plan:
        lines += [[], [text("How it got there", "bold")], *columns(list(_steps(name, plan)))]
        lines += [[], *finding_lines([item for item in plan.findings if name in item.fields], plan)]
    return lines


def field_record(name: str, plan: Plan | None) -> dict[str, Any]:
    """``explain FIELD --json``."""
    field = FIELDS[name]
    return {
        "schema": "sglang_hydra.explain/1",
        "field": name,
        "help": field.arg.help,
        "unit": field.arg.unit,
        "none": field.arg.none,
        "type": field.type,
        "flags": list(field.flags),
        "choices": list(field.arg.choices) if field.arg.choices else None,
        "default": plain(field.default),
        "value": plain(plan.values[name]) if plan else None,
        "origins": [plain(origin.to_json()) for origin in plan.origins.get(name, ())] if plan else [],
        "ledger": [plain(entry._asdict()) for entry in plan.resolution.ledger.of(name)] if plan else [],
        "findings": [item.to_json() for item in plan.findings if name in item.fields] if plan else [],
    }


def rule_screen(id: str) -> list[Line] | None:
    """A rule's page; None for an id that no rule has."""
    from sglang_hydra.checks.launchable import PLAN_CHECKS
    from sglang_hydra.rules import ORDER

    for rule in (*ORDER, *PLAN_CHECKS):
        if rule.id == id:
            where = f"SGLang 0.5.2, server_args.py:{rule.lines[0]}-{rule.lines[1]}" if rule.lines else "a check of ours"
            head: list[Line] = [
                [text(f"{rule.id}  {rule.name.replace('_', ' ')}", "bold")],
                [text(f"  {where}", "dim")],
            ]
            return [*head, [], *([text(f"  {line}")] for line in textwrap.dedent(rule.page).strip().splitlines())]
    return None


def _heading(plan: Plan) -> Iterator[Line]:
    gpu = plan.gpu
    memory = f", {gpu.memory_mib:g} MiB each" if gpu.memory_mib else ""
    count = f"{gpu.count} x " if gpu.count else ""
    version = f"SGLang {plan.engine.version}" if plan.engine.name != "transformers" else "transformers serve"
    yield [text(version, "bold"), text(" on "), text(f"{count}{gpu.name}", "bold"), text(memory)]
    if plan.model.known:
        known = f"facts: {plan.model.source}"
        if plan.model.unknown:
            known += f"; unknown: {', '.join(plan.model.unknown)}"
    else:
        known = f"facts unknown ({plan.model.source})"
    yield [text(f"  {printable(known)}", "dim")]
    for note in plan.notes:
        yield [text(f"  {printable(note)}", "dim")]


def _section(title: str, rows: list[list[tuple[str, str]]]) -> list[Line]:
    return [[text(title, "bold")], *columns(rows), []] if rows else []


def _set_rows(plan: Plan) -> list[list[tuple[str, str]]]:
    rows = []
    for name, value in plan.intent.items():
        chain = plan.origins.get(name, ())
        beaten = f" (over {_who(chain[-2])})" if len(chain) > 1 else ""
        who = f"{_who(chain[-1])}{beaten}" if chain else ""
        rows.append([text("+", "green"), text(name), text(shown(value)), text(who, "dim")])
    return rows


def _changed_rows(plan: Plan) -> list[list[tuple[str, str]]]:
    rows = []
    for entry in plan.resolution.ledger:
        asked = plan.intent.get(entry.field) is not None
        mark = text("!", "bold yellow") if asked else text("~", "yellow")
        change = f"{shown(entry.before, width=24)} -> {shown(entry.after)}"
        rows.append(
            [mark, text(entry.field), text(change), text(entry.rule, "cyan"), text(printable(entry.reason), "dim")]
        )
    return rows


def _steps(name: str, plan: Plan) -> Iterator[list[tuple[str, str]]]:
    yield [text("schema", "dim"), text(shown(FIELDS[name].default)), text("SGLang 0.5.2's default", "dim")]
    for origin in plan.origins.get(name, ()):
        yield [text(origin.layer), text(shown(origin.value)), text(origin.place, "dim")]
    from sglang_hydra.rules import ORDER

    lines = {rule.id: rule.lines for rule in ORDER}
    for entry in plan.resolution.ledger.of(name):
        span = lines.get(entry.rule)
        where = f"server_args.py:{span[0]}-{span[1]}  " if span else ""
        change = f"{shown(entry.before, width=24)} -> {shown(entry.after)}"
        yield [text(entry.rule, "cyan"), text(change), text(f"{where}{printable(entry.reason)}", "dim")]


def _who(origin: Origin) -> str:
    return origin.place or origin.layer


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
