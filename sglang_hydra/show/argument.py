"""Shows one argument: what it does, as the plan's release has it, and each step to its value."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from sglang_hydra.arguments.fields import FIELDS, MISSING, Arg, Field
from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.compose.provenance import HIDES
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.upstream.reasons import reasons_of
from sglang_hydra.releases.order import same_release
from sglang_hydra.releases.successors import name_in
from sglang_hydra.releases.table import Argument, nearest_known, release
from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.order import ORDER
from sglang_hydra.show.findings import finding_lines, shown_setting
from sglang_hydra.show.release_chain import chain_lines, chain_record
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import Line, columns, folded, room, shown, text
from sglang_hydra.upstream.help_text import help_of


def is_argument(name: str, version: str) -> bool:
    """Whether a page can be shown: of an argument that the release has, or that 0.5.2 has."""
    known = nearest_known(version)
    return name in FIELDS or (known is not None and name in release(known).arguments)


def field_in(name: str, version: str) -> Field:
    """An argument as a release has it; as 0.5.2 has it where the release does not. Raises KeyError where neither does.
    What it does is explained in our words, else in those of the release's wheel where it is here."""
    known = nearest_known(version)
    if same_release(version, SPECIFIED_VERSION) or known is None:
        return FIELDS[name]
    own: Argument | None = release(known).arguments.get(name)
    if own is None:
        return FIELDS[name]
    ours = FIELDS[name].arg if name in FIELDS else None
    about = ours.help if ours else help_of(name, version) or f"an argument of SGLang {version}; its wheel describes it"
    arg = Arg(
        about,
        unit=ours.unit if ours else None,
        none=ours.none if ours and "None" in own.type else None,
        choices=own.choices,
        flags=own.flags,
        secret=is_secret_name(name),
    )
    default = MISSING if own.required else own.computed if own.computed is not None else own.default
    return Field(name, own.type, default, arg, "release")


def field_screen(name: str, plan: Plan | None, version: str = SPECIFIED_VERSION) -> list[Line]:
    """Everything about one argument: what it does and, with a plan, each step to its value. Without a plan it is that
    of the release ``version``."""
    version = plan.engine.version if plan else version
    field = field_in(name, version)
    arg = field.arg
    lines: list[Line] = [[text(f"{name}{_value(name, plan)}", "bold")]]
    lines += [[text(f"  {part}")] for part in textwrap.wrap(arg.help, room())]
    facts = [("type", field.type), ("unit", arg.unit), ("null means", arg.none), ("flag", ", ".join(field.flags))]
    if arg.choices:
        facts.append(("choices", ", ".join(str(choice) for choice in arg.choices)))
    facts.append(("default", "none: it must be set" if field.required else shown(field.default)))
    for line in columns([[text(label, "dim"), text(str(content))] for label, content in facts if content]):
        lines += folded(line, room())
    if plan:
        lines += [[], [text("How it got there", "bold")], *columns(list(_steps(field, plan)))]
        lines += [line for note in plan.notes if HIDES in note for line in folded([text(f"  {note}", "dim")], room())]
        lines += [[], *finding_lines(_findings(name, plan), plan)]
        lines += chain_lines(reasons_of(name, plan))
    return lines


def field_record(name: str, plan: Plan | None, version: str = SPECIFIED_VERSION) -> dict[str, Any]:
    """``explain FIELD --json``; the schema is committed as schemas/explain.schema.json."""
    field = field_in(name, plan.engine.version if plan else version)
    reasons = chain_record(reasons_of(name, plan)) if plan else None
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
        "value": plain(plan.view.get(name)) if plan and name not in plan.unknown else None,
        "origins": [plain(origin.to_json()) for origin in plan.origins.get(name, ())] if plan else [],
        "ledger": [plain(entry._asdict()) for entry in plan.resolution.ledger.of(name)] if plan else [],
        "findings": [item.to_json() for item in _findings(name, plan)] if plan else [],
        **({"release": reasons} if reasons else {}),
    }


def _findings(name: str, plan: Plan) -> list[Finding]:
    """What the plan says of an argument, by its name or as one of a later release."""
    return [item for item in plan.findings if not {name, f"extra.{name}"}.isdisjoint(item.fields)]


def _value(name: str, plan: Plan | None) -> str:
    """The value behind the name; nothing where there is none to know."""
    if plan is None or name not in plan.view:
        return ""
    if name in plan.unknown:
        return f": unknown, SGLang {plan.engine.version} decides"
    return f" = {shown_setting(name, plan.view[name], 200)}"


def _steps(field: Field, plan: Plan) -> Iterator[list[tuple[str, str]]]:
    name, version = field.name, plan.engine.version
    default = "none" if field.required else shown(field.default)
    is_ours = name in FIELDS and (plan.by_own_rules or name not in plan.values)
    whose = SPECIFIED_VERSION if is_ours else version
    yield [text("schema", "dim"), text(default), text(f"SGLang {whose}'s default", "dim")]
    for origin in plan.origins.get(name, ()):
        yield [text(origin.layer), text(shown_setting(name, origin.value)), text(origin.place, "dim")]
    if (set_by := plan.settings.get(f"extra.{name}")) is not None:
        yield [text(set_by.layer), text(shown(plan.extra.get(name))), text(set_by.place, "dim")]
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
