"""Shows an upgrade to people, breaks first and the new command last, and makes the record of ``--json``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from sglang_hydra.arguments.secrets import masked
from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.arguments.tables.table import release
from sglang_hydra.convert.upgrade.releases import direction
from sglang_hydra.convert.upgrade.steps import Moved
from sglang_hydra.convert.upgrade.upgraded import Moves, Upgrade
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.plan import command_line
from sglang_hydra.text.json_types import JsonDict, plain
from sglang_hydra.text.screen import VERBATIM, Line, Span, columns, folded, room, shown, text
from sglang_hydra.text.words import plural, program

_MOST_PAGES = 6
_PACKAGES = ("torch", "transformers")
_PLACES_OF_VARIABLES = {"renamed": "{0} reads {1}", "gone": "{0} no longer reads it", "unknown": "{0} does not read it"}


def upgrade_screen(made: Upgrade, *, changes: bool = True) -> list[Line]:
    """Renders one server; without ``changes`` if another server has already shown them."""
    lines: list[Line] = [*_heading(made), []]
    lines += finding_lines(made.subject.findings)
    lines += _broken(made)
    lines += _respelled(made)
    lines += _resolved(made)
    lines += _variables(made)
    if changes:
        lines += _release(made)
    shown_before = {item.message for item in made.steps.broken}
    errors = [finding for finding in made.plan.errors if finding.message not in shown_before]
    lines += finding_lines(errors, made.plan) if errors else []
    lines += _commands(made)
    lines.append(summary(made))
    return lines


def _heading(made: Upgrade) -> Iterator[Line]:
    way = f"SGLang {made.start.version} -> {made.version}"
    yield [text(f"{made.subject.name}: ", "bold"), text(way, "bold cyan"), text(f"  ({made.start.why})", "dim")]
    if same_release(made.start.version, made.version):
        yield [text("  both are one release", "dim")]
    if made.start.is_assumed:
        yield [text("  if it was written for another one: --from VERSION", "dim")]


def _broken(made: Upgrade) -> Iterator[Line]:
    if not made.steps.broken:
        return
    yield [text("Breaks", "bold")]
    for item in made.steps.broken:
        yield from folded([text("  "), text("x ", "bold red"), text(item.message)], room())
        who = made.set_by.get(item.key)
        if who:
            yield [text(f"      set by {who}", "dim")]
        if item.hint:
            yield [text("      hint: ", "dim"), text(item.hint, "green")]
    yield []


def _respelled(made: Upgrade) -> Iterator[Line]:
    if made.steps.respelled:
        yield [text("Renamed", "bold")]
        rows: list[list[Span]] = []
        for item in made.steps.respelled:
            now = shlex.join(item.after) if item.after else "nothing: it is at its default"
            key = item.key if item.after else ""
            rows.append([text("~", "yellow"), text(shlex.join(item.before)), text("->"), text(now), text(key, "dim")])
        yield from columns(rows)
    for finding in made.steps.remarks:
        yield from folded([text("  "), text("! ", "yellow"), text(finding.message)], room())
    if made.steps.respelled or made.steps.remarks:
        yield []


def _resolved(made: Upgrade) -> Iterator[Line]:
    """Shows the values that move between both releases' own code, else the defaults that move in the table."""
    if isinstance(made.comparison, Moves):
        yield from _compared(made.comparison)
        return
    if same_release(made.start.version, made.version):
        return
    if made.steps.moved:
        yield [text("Defaults that move", "bold"), text("  not in your command; by the table of releases", "dim")]
        yield from columns([_row(item, made) for item in made.steps.moved])
        keep = next((item.keep for item in reversed(made.steps.moved) if item.keep), None)
        if keep:
            yield [text(f"  What is typed keeps the old one, such as {keep}", "dim")]
    message = f"Which values {made.version} resolves otherwise is not known: {made.comparison}"
    yield from folded([text(f"  {message}" if made.steps.moved else message, "dim")], room())
    yield []


def _compared(found: Moves) -> Iterator[Line]:
    asked = f", with {plural(len(found.steps), 'release')} between" if found.steps else ""
    yield [text("Values that move", "bold"), text(f"  by the code of both releases{asked}", "dim")]
    rows: list[list[Span]] = []
    for item in found.moves:
        values = f"{shown(item.before, width=28)} -> {shown(item.after, width=28)}"
        since = f"since {item.since}" if item.since else item.kind if item.kind != "value" else ""
        was, now = item.why
        reason = f"{now} (was: {was})" if was not in ("", now, "default") else now
        rows.append([text("~", "yellow"), text(item.key), text(values), text(since, "dim"), text(reason, "dim")])
    yield from columns(rows) if rows else iter([[text("  none: every value is the same", "dim")]])
    if found.before_id == found.after_id:
        yield [text(f"  the same server, {found.after_id}", "dim")]
    else:
        yield [text(f"  another server: {found.before_id} -> {found.after_id}", "dim")]
    yield []


def _row(item: Moved, made: Upgrade) -> list[Span]:
    since = f"since {item.since}" if item.since else ""
    values = made.plan.values
    resolved = ""
    if made.plan.is_exact and item.name in values and plain(values[item.name]) != plain(item.after):
        resolved = f"{shown(values[item.name], width=24)} in the plan"
    move = f"{shown(_default_value(item.before), width=24)} -> {shown(_default_value(item.after), width=24)}"
    return [text("~", "yellow"), text(item.name), text(move), text(since, "dim"), text(resolved, "dim")]


def _default_value(value: object) -> object:
    return "(computed)" if isinstance(value, dict) and set(value) == {"computed"} else value


def _variables(made: Upgrade) -> Iterator[Line]:
    if not made.variables:
        return
    yield [text("Environment", "bold")]
    rows: list[list[Span]] = []
    for item in made.variables:
        message = _PLACES_OF_VARIABLES[item.state].format(made.version, item.instead)
        if item.state == "unknown":
            message += ", nor does " + made.start.version
        style = "yellow" if item.state != "unknown" else "dim"
        rows.append([text("!", style), text(item.name), text(message), text(item.place, "dim")])
    yield from columns(rows)
    yield []


def _release(made: Upgrade) -> Iterator[Line]:
    """Shows the facts independent of this configuration: the release's requirements, commands and pages."""
    changes, needs = made.changes, release(made.version).needs
    wanted = [f"Python {needs['python']}", *(f"{name}{needs['packages'][name]}" for name in _PACKAGES)]
    wanted += [f"CUDA {needs['cuda']}, driver {needs['driver']} or newer"] if made.plan.gpu.vendor == "nvidia" else []
    rows: list[list[Span]] = [[text("needs"), text(f"{', '.join(wanted)}; {program()} doctor shows what is here")]]
    if changes.serve_since:
        message = f"sglang serve MODEL (since {changes.serve_since}) does what the command below does"
        rows.append([text("commands"), text(message)])
    pages = changes.names["pages"]
    for name in changes.names["scripts"]["removed"]:
        rows.append([text("commands"), text(f"{name} is removed", "yellow")])
    gone = pages["removed"]
    rows += [[text("endpoints removed"), text(page, "yellow")] for page in gone[:_MOST_PAGES]]
    if len(gone) > _MOST_PAGES:
        message = f"{len(gone) - _MOST_PAGES} more; --json lists them"
        rows.append([text("endpoints removed"), text(message, "yellow")])
    if pages["added"]:
        rows.append([text("endpoints added"), text(f"{len(pages['added'])}; --json lists them", "dim")])
    yield [text(f"The server of {made.version}", "bold")]
    labels = [label for label, *_ in rows]
    yield from columns([[text("") if row[0] in labels[:at] else row[0], *row[1:]] for at, row in enumerate(rows)])
    yield []


def _commands(made: Upgrade) -> Iterator[Line]:
    if made.plan.command:
        left_out = ", ".join(item.key for item in made.steps.broken)
        without = f"  without {left_out}" if left_out else ""
        yield [text("The new command", "bold"), text(without, "bold red")]
        yield [text("  "), text(command_line(made.plan), VERBATIM)]
        if made.plan.values["nnodes"] > 1:
            yield [text(f"  of {made.plan.values['nnodes']} nodes; {program()} plan shows each", "dim")]
        if made.secrets:
            how = "which the command below hands over unseen"
            if not {word.partition("=")[0] for word in made.words}.issuperset(made.secrets):
                how = f"and so is the command below: add '{made.secrets[0]}=${{oc.env:MY_KEY}}'"
            yield [text(f"  without {', '.join(made.secrets)}, {how}", "dim")]
    yield [text("  "), text(made.our_command, VERBATIM)]
    yield []


def summary(made: Upgrade) -> Line:
    """Returns one line: the number of changes, and the verdict."""
    steps = made.steps
    count, what = len(steps.moved), "default"
    if isinstance(made.comparison, Moves):
        count, what = sum(item.kind == "value" for item in made.comparison.moves), "value"
    moves = f"{plural(count, what)} {'moves' if count == 1 else 'move'}"
    broken = len(steps.broken) + sum(finding.about == "unknown_flag" for finding in made.subject.findings)
    head = f"{plural(broken, 'argument')} {'breaks' if broken == 1 else 'break'}, "
    head += f"{len(steps.respelled)} renamed, {moves}: "
    return [text(head), _verdict(made)]


def _verdict(made: Upgrade) -> Span:
    way = direction(made.start.version, made.version)
    if made.ok:
        return text("nothing to do" if way == "same" else f"{made.version} takes it", "bold green")
    if made.steps.broken or any(finding.about == "unknown_flag" for finding in made.subject.findings):
        return text(f"{made.version} refuses it as it was", "bold red")
    if any(finding.level == "error" for finding in made.subject.findings):
        return text("not everything of the source could be read", "bold red")
    return text(f"{made.version} would refuse it", "bold red")


SCHEMA = "sglang_hydra.upgrade/1"


def record(made: Sequence[Upgrade], files: Sequence[tuple[str | None, Path | None, str | None]]) -> JsonDict:
    """Returns the record of all servers. ``files`` holds each one's new file: its kind, path and content."""
    return {
        "schema": SCHEMA,
        "to": made[0].version,
        "ok": all(one.ok for one in made),
        "servers": [_server(one, *file) for one, file in zip(made, files, strict=True)],
    }


def _server(made: Upgrade, kind: str | None, path: Path | None, content: str | None) -> JsonDict:
    plan, steps = made.plan, made.steps
    return {
        "name": made.subject.name,
        "source": made.subject.kind,
        "from": made.start.version,
        "from_why": made.start.why,
        "direction": direction(made.start.version, made.version),
        "ok": made.ok,
        "server_id": plan.server_id,
        "breaks": [
            {**asdict(item), "value": masked(item.key, item.value), "set_by": made.set_by.get(item.key)}
            for item in steps.broken
        ],
        "renamed": plain(steps.respelled),
        "defaults": [{**plain(item), "resolved": plain(plan.values.get(item.name))} for item in steps.moved],
        "values": _values(made.comparison),
        "variables": [asdict(item) for item in made.variables],
        "release": made.changes.names,
        "needs": dict(release(made.version).needs),
        "command": list(plan.command),
        "command_line": command_line(plan) if plan.command else "",
        "environment": plan.shown_environment,
        "ours": made.our_command,
        "file": None if kind is None else {"kind": kind, "path": str(path) if path else None, "content": content},
        "findings": [finding.to_json() for finding in (*made.subject.findings, *steps.remarks, *plan.findings)],
    }


def _values(found: Moves | str) -> dict[str, object]:
    """Returns the values of both releases; ``why`` says why they are unknown."""
    if isinstance(found, str):
        return {"asked": False, "why": found, "moves": [], "steps": [], "before_id": None, "after_id": None}
    moves = [plain(item) for item in found.moves]
    ids = {"before_id": found.before_id, "after_id": found.after_id}
    return {"asked": True, "why": None, "moves": moves, "steps": list(found.steps), **ids}
