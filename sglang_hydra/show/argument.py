"""Shows one argument: its meaning in the plan's release, and each step to its value."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from sglang_hydra.arguments.fields import FIELDS, Field
from sglang_hydra.arguments.meant import PARSERS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.successors import name_in
from sglang_hydra.arguments.tables.table import Argument, nearest_known, release
from sglang_hydra.compose.provenance import HIDES
from sglang_hydra.planning.comparing.installed import case_of
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.asking import with_all_reasons
from sglang_hydra.releases.provider import Provider
from sglang_hydra.releases.reasons import help_of, quote
from sglang_hydra.releases.recorded import resolved_fields
from sglang_hydra.releases.records import default_release
from sglang_hydra.rules.answer import Answer, Change, Step
from sglang_hydra.rules.checks.api import parser_of
from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.order import ORDER
from sglang_hydra.show.findings import finding_lines, shown_setting
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import Line, all_folded, columns, folded, room, shown, text
from sglang_hydra.text.words import program


def is_argument(name: str, version: str) -> bool:
    """Returns whether the argument has a page: the release or 0.5.2 has it."""
    return name in FIELDS or name in Provider(version).fields()


def field_in(name: str, version: str) -> Field:
    """Returns an argument as a release has it, else as 0.5.2 does. Raises KeyError where neither has it. Its meaning is
    our text, else that of the release's wheel, if the wheel is here."""
    field = Provider(version).fields().get(name)
    if field is None or field is FIELDS.get(name):
        return FIELDS[name]
    own = release(nearest_known(version) or version).arguments[name]
    about = field.arg.help or help_of(name, version) or f"an argument of SGLang {version}; its wheel describes it"
    arg = field.arg._replace(help=about, none=_null_means(field, own, version), flags=own.flags)
    default = field.default if own.computed is None else own.computed
    return field._replace(type=own.type, default=default, arg=arg)


def _null_means(field: Field, own: Argument, version: str) -> str | None:
    """Returns the meaning of null: our text describes 0.5.2, and holds where no release's code sets the argument."""
    if not field.arg.help or field.arg.none is None or "None" not in own.type:
        return None
    return f"SGLang {version} chooses it at its start" if own.name in resolved_fields() else field.arg.none


def field_screen(name: str, plan: Plan | None, version: str | None = None) -> list[Line]:
    """Shows one argument: its meaning and, with a plan, each step to its value. Without a plan it is the argument of
    the release ``version``."""
    version = plan.engine.version if plan else version or default_release()
    field = field_in(name, version)
    arg = field.arg
    lines: list[Line] = [[text(f"{name}{_value(name, plan)}", "bold")]]
    lines += [[text(f"  {part}")] for part in textwrap.wrap(arg.help, room())]
    facts = [("type", field.type), ("unit", arg.unit), ("null means", arg.none), ("flag", ", ".join(field.flags))]
    if arg.choices:
        facts.append(("choices", ", ".join(str(choice) for choice in arg.choices)))
    facts.append(("default", "none: it must be set" if field.required else shown(field.default)))
    if plan and name in PARSERS and (parser := parser_of(str(plan.values["model_path"]), name, version)):
        facts.append(("for this model", parser))
    lines += all_folded(columns([[text(label, "dim"), text(str(content))] for label, content in facts if content]))
    if plan:
        lines += [[], [text("How it got there", "bold")], *columns(list(_steps(field, plan)))]
        lines += [line for note in plan.notes if HIDES in note for line in folded([text(f"  {note}", "dim")])]
        lines += [[], *finding_lines(_findings(name, plan), plan)]
        lines += chain_lines(name, plan)
    else:
        value = f"{program()} explain {name} gpu=h200 model=gpt_oss: its value in a plan, and each step to it"
        lines += [[], *folded([text(value, "dim")])]
    return lines


def field_record(name: str, plan: Plan | None, version: str | None = None) -> dict[str, object]:
    """Returns ``explain FIELD --json``; the schema is committed as schemas/explain.schema.json."""
    field = field_in(name, plan.engine.version if plan else version or default_release())
    reasons = chain_record(name, plan) if plan else None
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
        "value": plain(plan.values.get(name)) if plan and name not in plan.unknown else None,
        "origins": [plain(origin.to_json()) for origin in plan.origins.get(name, ())] if plan else [],
        "ledger": [plain(entry._asdict()) for entry in plan.resolution.ledger.of(name)] if plan else [],
        "findings": [item.to_json() for item in _findings(name, plan)] if plan else [],
        **({"release": reasons} if reasons else {}),
    }


def _findings(name: str, plan: Plan) -> list[Finding]:
    about = {name, *(["model_path"] if _lacks_model(name, plan) else [])}
    return [item for item in plan.findings if not about.isdisjoint(item.fields)]


def _lacks_model(name: str, plan: Plan) -> bool:
    """Returns whether the argument is unresolved because no model is named."""
    return plan.intent.get("model_path") is None and name not in plan.intent


def _value(name: str, plan: Plan | None) -> str:
    """Returns the text of the value after the name; empty where no value is known."""
    if plan is None or name not in plan.values:
        return ""
    if _lacks_model(name, plan):
        return ": not resolved, as no model is named"
    if name in plan.unknown:
        return f": unknown, SGLang {plan.engine.version} decides"
    return f" = {shown_setting(name, plan.values[name], 200)}"


def _steps(field: Field, plan: Plan) -> Iterator[list[tuple[str, str]]]:
    name, version = field.name, plan.engine.version
    default = "none" if field.required else shown(field.default)
    is_ours = name in FIELDS and (plan.by_own_rules or name not in plan.values)
    whose = SPECIFIED_VERSION if is_ours else version
    yield [text("schema", "dim"), text(default), text(f"SGLang {whose}'s default", "dim")]
    for origin in plan.origins.get(name, ()):
        yield [text(origin.layer), text(shown_setting(name, origin.value)), text(origin.place, "dim")]
    meant = name_in(name, version)
    if not plan.by_own_rules and meant != name:
        own = f"it is {meant} there" if meant else "the release has no such argument"
        yield [text(version, "cyan"), text(""), text(own, "dim")]
    rules = {rule.id: rule for rule in (*ORDER, *PLAN_CHECKS)}
    for entry in plan.resolution.ledger.of(name):
        rule = rules.get(entry.rule)
        where = f"server_args.py:{rule.lines[0]}-{rule.lines[1]}  " if rule and rule.lines else ""
        if rule and not plan.by_own_rules:
            where = f"{SPECIFIED_VERSION}'s {where}"
        change = f"{shown(entry.before, width=24)} -> {shown(entry.after)}"
        yield [text(entry.rule, "cyan"), text(change), text(f"{where}{entry.reason}", "dim")]


def chain_lines(name: str, plan: Plan) -> list[Line]:
    """Returns the steps of the release's code under a title; SGLang's own words only if the wheel is here. Empty for
    the release whose rules have pages of their own, and for other engines."""
    if plan.release.is_by_rules:
        return []
    version, (answer, is_whole) = plan.engine.version, _answer(plan)
    lines: list[Line] = [[text(f"By the code of SGLang {version}", "bold")]]
    if answer is None:
        return [*lines, *folded([text(f"  not asked: {plan.resolution.not_asked}", "dim")]), []]
    changes = _changes(name, answer, version)
    for change in changes:
        lines.append([text(f"  {shown(change.before, width=24)} -> {shown(change.after)}", "yellow")])
        if change.step is None:
            lines.append([text("    by an unobserved statement", "dim")])
        else:
            lines += _step(change.step, version, "    ")
    if not changes and answer.error is None:
        lines.append([text("  it changes nothing: the value was given, or is the default", "dim")])
    if answer.error is not None:
        lines += folded([text(f"  it refuses: {answer.error}", "bold red")])
    if answer.check is not None:
        lines += _step(answer.check, version, "    ")
    if changes and not is_whole:
        fewer = f"  reasons are recorded in part; {program()} release fetch {version} for every statement"
        lines += folded([text(fewer, "dim")])
    return [*lines, []]


def chain_record(name: str, plan: Plan) -> dict[str, object] | None:
    """Returns the same steps for ``--json``."""
    if plan.release.is_by_rules:
        return None
    version, (answer, is_whole) = plan.engine.version, _answer(plan)
    return {
        "version": version,
        "why_not": None if answer else plan.resolution.not_asked,
        "complete": is_whole,
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


def _answer(plan: Plan) -> tuple[Answer | None, bool]:
    """Returns the release's answer, and whether it has all reasons: of a recorded one only with the wheel."""
    answer, version = plan.resolution.answer, plan.engine.version
    if answer is None or plan.resolution.basis != "recorded":
        return answer, answer is not None
    asked = with_all_reasons(answer, case_of(plan, version), version)
    return asked, asked is not answer


def _changes(name: str, answer: Answer, version: str) -> list[Change]:
    """Returns the release's changes to an argument, under its name there, in order."""
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
    return folded([text(content, style)])


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
        "quote": plain(quoted),
    }
