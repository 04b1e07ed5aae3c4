"""Shows our own keys to people and programs: one key or all of a group, alone or in a plan."""

from __future__ import annotations

import functools
import operator
import textwrap
from collections.abc import Iterator, Sequence

from sglang_hydra.arguments.secrets import masked
from sglang_hydra.compose.composer import Composer
from sglang_hydra.planning.plan import Plan
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.key_help import GROUPS, Key, below, key_of
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.origins import Origin
from sglang_hydra.text.screen import Line, all_folded, columns, folded, room, shown, text

_VALUES_WIDTH = 24


def screen(name: str, composer: Composer, plan: Plan | None = None) -> list[Line]:
    """Returns the lines of one key, or a line for each key of a group; ``name`` is either."""
    return _group_screen(name, composer, plan) if name in GROUPS else _key_screen(name, composer, plan)


def record(name: str, composer: Composer, plan: Plan | None = None) -> dict[str, object]:
    """Returns ``explain KEY --json`` and ``explain GROUP --json``; schema: schemas/explain.schema.json."""
    if name in GROUPS:
        return {
            "schema": "sglang_hydra.explain/1",
            "group": name,
            "help": GROUPS[name],
            "options": composer.options(name),
            "keys": [_key_record(key.name, composer, plan) for key in below(name)],
        }
    return {"schema": "sglang_hydra.explain/1", **_key_record(name, composer, plan)}


def rows_of(some: Sequence[Key], plan: Plan | None = None) -> Iterator[Line]:
    """Yields a line for each key: its name, its value or default, and its meaning."""
    rows = []
    for key in some:
        value = shown(_value_of(key.name, plan) if plan else key.default, width=_VALUES_WIDTH)
        rows.append([text(key.name, "cyan"), text(value), text(key.about, "dim")])
    yield from all_folded(columns(rows))


def _group_screen(name: str, composer: Composer, plan: Plan | None) -> list[Line]:
    lines: list[Line] = [[text(name, "bold")]]
    lines += [[text(f"  {part}")] for part in textwrap.wrap(GROUPS[name], room())]
    options = composer.options(name)
    if options:
        lines += folded([text("  options  ", "dim"), text(f"{name}={', '.join(options)}")])
    return [*lines, [], *rows_of(below(name), plan)]


def _key_screen(name: str, composer: Composer, plan: Plan | None) -> list[Line]:
    key = key_of(name)
    assert key is not None
    value = f" = {shown(_value_of(name, plan), width=200)}" if plan else ""
    lines: list[Line] = [[text(f"{name}{value}", "bold")]]
    lines += [[text(f"  {part}")] for part in textwrap.wrap(key.about, room())]
    facts = [("type", key.type), ("null means", key.null), ("choices", ", ".join(key.choices))]
    facts.append(("default", shown(key.default)) if name == key.name else ("part of", key.name))
    lines += all_folded(columns([[text(label, "dim"), text(content)] for label, content in facts if content]))
    if plan:
        lines += [[], [text("How it got there", "bold")], *columns(list(_steps(key, name, composer, plan)))]
        lines += [[], *finding_lines([item for item in plan.findings if name in item.fields], plan)]
    return lines


def _steps(key: Key, name: str, composer: Composer, plan: Plan) -> Iterator[list[tuple[str, str]]]:
    if name == key.name:
        yield [text("schema", "dim"), text(shown(key.default)), text("the default", "dim")]
    for origin in _origins(name, composer, plan):
        yield [text(origin.layer), text(shown(origin.value)), text(origin.place, "dim")]


def _key_record(name: str, composer: Composer, plan: Plan | None) -> dict[str, object]:
    key = key_of(name)
    assert key is not None
    return {
        "key": name,
        "help": key.about,
        "none": key.null,
        "type": key.type,
        "choices": list(key.choices) or None,
        "default": plain(key.default),
        "value": plain(_value_of(name, plan)) if plan else None,
        "origins": [plain(origin.to_json()) for origin in _origins(name, composer, plan)] if plan else [],
    }


def _value_of(name: str, plan: Plan) -> object:
    """Returns a key's effective value in a plan, with secrets masked; for GPU and engine the detected value."""
    root, _, leaf = name.partition(".")
    if root == "gpu" and plan.probed and hasattr(plan.gpu, leaf):
        known = getattr(plan.gpu, leaf)
        return ".".join(map(str, known)) if leaf == "compute_capability" and known else known
    if root == "engine" and leaf in ("name", "python", "version"):
        return getattr(plan.engine, leaf)
    return plan.setting(name)


def _origins(name: str, composer: Composer, plan: Plan) -> Iterator[Origin]:
    """Yields the origins of a key, weakest first: the chosen option, an override, a detected value."""
    yield from _of_options(name, composer, plan)
    for key, origin in plan.settings.items():
        if key == name or key.startswith(f"{name}."):
            value = plan.setting(key)
            part = value if key == name else {key.removeprefix(f"{name}."): value}
            yield Origin(origin.layer, part, origin.where, origin.file, origin.keys)
    found = _value_of(name, plan)
    if found != plan.setting(name):
        note = plan.engine.note if name.startswith("engine.") else None
        yield Origin("found", found, note or "on this machine")


def _of_options(name: str, composer: Composer, plan: Plan) -> Iterator[Origin]:
    """Yields the values of a key in the files of the chosen options (``gpu=h200``, ``bench/workload=1k1k``)."""
    keys = tuple(name.split("."))
    for group, option in plan.choices.items():
        if option is None or group.partition("/")[0] != keys[0]:
            continue
        for part in composer.preset(group, option).parts if option in composer.options(group) else ():
            if keys[1:] in part.key_paths():
                value: object = functools.reduce(operator.getitem, keys[1:], part.tree)
                yield Origin(group, masked(keys[-1], value), file=part.file or None, keys=keys[1:])
