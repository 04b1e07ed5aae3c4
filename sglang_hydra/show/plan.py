"""Shows a plan, and how one argument got its value. It renders and decides nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.compose.provenance import HIDES
from sglang_hydra.planning.plan import Plan
from sglang_hydra.rules.order import ORDER
from sglang_hydra.show.findings import finding_lines, shown_origin, shown_setting
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import VERBATIM, Line, columns, folded, room, shown, text
from sglang_hydra.text.shell import shell_word
from sglang_hydra.text.words import number, plural


def plan_screen(plan: Plan) -> list[Line]:
    """The whole plan: what it is for, what was set and by whom, what the rules made of it, and what is wrong."""
    lines: list[Line] = [*heading(plan), []]
    lines += section("Set", set_rows(plan))
    lines += section(rules_title(plan), changed_rows(plan))
    if plan.authority is not None and plan.authority.ok is not None:
        from sglang_hydra.show.upstream import authority_lines

        lines += [[text("SGLang's own word", "bold")], *authority_lines(plan.authority), []]
    if plan.fit is not None:
        from sglang_hydra.show.memory import memory_lines

        lines += memory_lines(plan.fit, plan.gpu.name)
    lines += finding_lines(plan.findings, plan)
    if plan.launchable:
        lines += _commands(plan)
        if plan.secrets:
            lines.append([text(f"  without {', '.join(plan.secrets)}, which is handed to the server unseen", "dim")])
        lines.append([])
    lines.append(summary(plan))
    return lines


def _commands(plan: Plan) -> list[Line]:
    """Shows the command, or one for each node."""
    if plan.values["nnodes"] <= 1:
        return [[text("Command", "bold")], [text("  "), text(command_line(plan), VERBATIM)]]
    from sglang_hydra.planning.nodes import UNKNOWN_HEAD, command_rows

    lines: list[Line] = [[text("Commands, one on each node", "bold")]]
    for node, command in command_rows(plan):
        lines.append([text(f"  {node}", "dim")])
        if command:
            lines.append([text("    "), text(command_line(plan, command), VERBATIM)])
    if plan.values["dist_init_addr"] is None:
        where = "an address of node 0 and a free port there; dist_init_addr=HOST:PORT sets it"
        if plan.nodes["launch"]["name"] == "slurm":
            where = "found inside the job: the address of its first node and a port that is free there"
        lines.append([text(f"  {UNKNOWN_HEAD} is {where}", "dim")])
    return lines


def command_line(plan: Plan, command: Sequence[str] | None = None) -> str:
    """The launch command (or another) for a shell, the environment that the plan sets in front. It holds no secret."""
    assignments = [f"{name}={shell_word(value)}" for name, value in plan.shown_environment.items()]
    return " ".join([*assignments, *map(shell_word, plan.command if command is None else command)])


def rules_title(plan: Plan) -> str:
    """Names the release whose rules made the values below."""
    if plan.by_own_rules:
        return "Resolved by SGLang's rules"
    return f"Resolved by the rules of SGLang {SPECIFIED_VERSION}: {plan.engine.version} may resolve otherwise"


def summary(plan: Plan) -> Line:
    changed = {entry.field for entry in plan.resolution.ledger}
    asked = set(plan.intent)
    levels = [finding.level for finding in plan.findings]
    counts = f"{plural(levels.count('error'), 'error')}, {plural(levels.count('warning'), 'warning')}"
    if plan.ignored:
        counts += f", {len(plan.ignored)} ignored"
    if plan.launchable:
        verdict = text("can be launched", "bold green")
    elif plan.authority is not None and plan.authority.ok is False:
        verdict = text(f"SGLang {plan.authority.authority.version} refuses it", "bold red")
    elif plan.ok and not plan.resolution.ok:
        verdict = text(f"SGLang {SPECIFIED_VERSION} would refuse it", "bold red")
    elif plan.ok:
        verdict = text("SGLang would accept it and then fail", "bold red")
    else:
        verdict = text("SGLang would refuse it", "bold red")
    untouched = len(FIELDS) - len(changed | asked)
    head = (
        f"Plan {plan.server_id}: {len(asked)} set, {len(changed)} resolved, {untouched} at their defaults; {counts}: "
    )
    return [text(head), verdict]


def field_screen(name: str, plan: Plan | None) -> list[Line]:
    """Everything about one argument: what it does and, with a plan, each step to its value."""
    field = FIELDS[name]
    arg = field.arg
    value = f" = {shown_setting(name, plan.values[name], 200)}" if plan else ""
    lines: list[Line] = [[text(f"{name}{value}", "bold")]]
    lines += [[text(f"  {part}")] for part in textwrap.wrap(arg.help, room())]
    facts = [("type", field.type), ("unit", arg.unit), ("null means", arg.none), ("flag", ", ".join(field.flags))]
    if field.arg.choices:
        facts.append(("choices", ", ".join(str(choice) for choice in field.arg.choices)))
    facts.append(("default", "none: it must be set" if field.required else shown(field.default)))
    for line in columns([[text(label, "dim"), text(str(content))] for label, content in facts if content]):
        lines += folded(line, room())
    if plan:
        lines += [[], [text("How it got there", "bold")], *columns(list(_steps(name, plan)))]
        lines += [line for note in plan.notes if HIDES in note for line in folded([text(f"  {note}", "dim")], room())]
        lines += [[], *finding_lines([item for item in plan.findings if name in item.fields], plan)]
    return lines


def field_record(name: str, plan: Plan | None) -> dict[str, Any]:
    """``explain FIELD --json``; the schema is committed as schemas/explain.schema.json."""
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
        "default": None if field.required else plain(field.default),
        "required": field.required,
        "value": plain(plan.values[name]) if plan else None,
        "origins": [plain(origin.to_json()) for origin in plan.origins.get(name, ())] if plan else [],
        "ledger": [plain(entry._asdict()) for entry in plan.resolution.ledger.of(name)] if plan else [],
        "findings": [item.to_json() for item in plan.findings if name in item.fields] if plan else [],
    }


def _rules() -> Mapping[str, Any]:
    """Every rule and check by its id."""
    from sglang_hydra.rules.checks.launchable import PLAN_CHECKS

    return {rule.id: rule for rule in (*ORDER, *PLAN_CHECKS)}


def heading(plan: Plan) -> Iterator[Line]:
    """What the plan is for: the release, the model, the GPUs, and what is known of them."""
    gpu = plan.gpu
    memory = f", {number(gpu.memory_mib)} MiB each" if gpu.memory_mib else ""
    count = f"{gpu.count} x " if gpu.count else ""
    version = f"SGLang {plan.engine.version}" if plan.engine.name != "transformers" else "transformers serve"
    model = plan.intent.get("model_path")
    serving = [text(" serving "), text(shown(model), "bold")] if model else []
    yield [text(version, "bold"), *serving, text(" on "), text(f"{count}{gpu.name}", "bold"), text(memory)]
    if plan.model.known:
        known = f"model facts: {plan.model.source}"
        if plan.model.unknown:
            known += f"; unknown: {', '.join(plan.model.unknown)}"
    else:
        known = f"model facts: unknown ({plan.model.source})"
    inherited = [f"{name}={shown(value)}" for name, value in plan.inherited.items()]
    notes = [known, *plan.notes, *([f"environment: {' '.join(inherited)} (set already)"] if inherited else [])]
    for note in notes:
        yield from folded([text("  "), text(note, "dim")], room())


def section(title: str, rows: list[list[tuple[str, str]]]) -> list[Line]:
    """Rows under a title; nothing where there are no rows."""
    return [[text(title, "bold")], *columns(rows), []] if rows else []


def set_rows(plan: Plan) -> list[list[tuple[str, str]]]:
    """A row for each argument of ``plan.intent``, in its order: value, and who set it over whom."""
    rows = []
    for name, value in plan.intent.items():
        chain = plan.origins.get(name, ())
        beaten = f" (over {shown_origin(chain[-2])})" if len(chain) > 1 else ""
        who = f"{shown_origin(chain[-1])}{beaten}" if chain else ""
        rows.append([text("+", "green"), text(name), text(shown_setting(name, value)), text(who, "dim")])
    for name, value in plan.extra.items():
        origin = plan.settings.get(f"extra.{name}")
        who = origin.place if origin else ""
        rows.append([text("+", "green"), text(f"extra.{name}"), text(shown(value)), text(who, "dim")])
    return rows


def changed_rows(plan: Plan) -> list[list[tuple[str, str]]]:
    """A row for each entry of the ledger, in its order."""
    rows = []
    for entry in plan.resolution.ledger:
        asked = plan.intent.get(entry.field) is not None
        mark = text("!", "bold yellow") if asked else text("~", "yellow")
        change = f"{shown(entry.before, width=24)} -> {shown(entry.after)}"
        rows.append([mark, text(entry.field), text(change), text(entry.rule, "cyan"), text(entry.reason, "dim")])
    return rows


def _steps(name: str, plan: Plan) -> Iterator[list[tuple[str, str]]]:
    default = "none" if FIELDS[name].required else shown(FIELDS[name].default)
    yield [text("schema", "dim"), text(default), text("SGLang 0.5.2's default", "dim")]
    for origin in plan.origins.get(name, ()):
        yield [text(origin.layer), text(shown_setting(name, origin.value)), text(origin.place, "dim")]
    for entry in plan.resolution.ledger.of(name):
        rule = _rules().get(entry.rule)
        where = f"server_args.py:{rule.lines[0]}-{rule.lines[1]}  " if rule and rule.lines else ""
        change = f"{shown(entry.before, width=24)} -> {shown(entry.after)}"
        yield [text(entry.rule, "cyan"), text(change), text(f"{where}{entry.reason}", "dim")]
