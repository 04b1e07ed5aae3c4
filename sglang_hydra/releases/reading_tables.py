"""Reads the table of a release's arguments from its wheel: what it changed of the nearest release of the table.

The release says it itself, sealed: its class of arguments and its parser (``child.fields``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sglang_hydra.arguments.tables.table import raw_tables, typed_flags

_FLAG = re.compile(r"--[A-Za-z][\w-]{0,99}")
_ACTIONS = {"_StoreTrueAction": "store_true", "_StoreFalseAction": "store_false", "_StoreAction": None}
_PLAIN = ("str", "int", "float", "bool")
_READERS = {"loads": "json.loads"}
_OPTIONAL = re.compile(r"(?:typing\.)?Optional\[(.*)\]")


def changes_of(table: Mapping[str, Any], near: str) -> dict[str, Any]:
    """The row of a release, in the form of table.json: what its ``table`` has otherwise than ``near``."""
    arguments, old = raw_tables(near)
    feeds = {flag: name for name, spec in arguments.items() for flag in typed_flags(name, spec)}
    fields = {name: spec for name, spec in table["fields"].items() if name.isidentifier()}
    specs: dict[str, dict[str, Any]] = {name: {} for name in fields}
    olds: dict[str, dict[str, Any]] = {}
    for option in table["options"]:
        flags = [flag for flag in option["flags"] if _FLAG.fullmatch(flag)]
        name = option["dest"] if option["dest"] in fields else next(filter(fields.get, map(feeds.get, flags)), None)
        if option["action"].startswith("Deprecated") or (name and specs[name]):
            olds |= {flag: _old_flag(option, name) for flag in flags}
        elif name and flags:
            specs[name] = _typed(option, flags)
    made = {name: _spec(name, fields[name], specs[name], arguments.get(name)) for name in fields}
    known = {flag: old.get(flag, spec) for flag, spec in olds.items()}
    return {"near": near, "arguments": _changes(arguments, made), "old_flags": _changes(old, known)}


def _typed(option: Mapping[str, Any], flags: list[str]) -> dict[str, Any]:
    """What the parser says of an argument, in the table's words."""
    action = _ACTIONS.get(option["action"], option["action"])
    if action == "BooleanOptionalAction":
        flags = [flag for flag in flags if not flag.startswith("--no-")]
    is_switch = action is not None and action.startswith(("store_", "Boolean"))
    reader = None if is_switch or option["reader"] in _PLAIN else _READERS.get(option["reader"], option["reader"])
    made = {"flags": flags, "action": action, "choices": option["choices"], "reader": reader}
    return made | ({} if is_switch else {"nargs": option["nargs"], "const": option["const"]})


def _spec(
    name: str, field: Mapping[str, Any], typed: Mapping[str, Any], known: Mapping[str, Any] | None
) -> dict[str, Any]:
    """An argument as table.json has it. What the nearest release says of it stays where this one says the same."""
    made: dict[str, Any] = dict(known) if known else {"type": _type(field["type"])}
    is_computed = isinstance(made.get("default"), dict) and "computed" in made["default"]
    if "default" in field and not is_computed:
        made["default"] = field["default"]
    flags, choices = typed.get("flags", []), typed.get("choices")
    if sorted(flags) != sorted(made.get("flags", [f"--{name.replace('_', '-')}"])):
        made["flags"] = flags
    if choices is not None and {json.dumps(one) for one in choices} != {
        json.dumps(one) for one in made.get("choices", ())
    }:
        made["choices"] = choices
    if known is None or (typed and typed["action"] != known.get("action")):
        made["type"] = _type(field["type"])
        made.pop("action", None)
    rest = {key: typed.get(key) for key in ("nargs", "action", "const", "reader") if known is None or key not in made}
    return made | {key: value for key, value in rest.items() if value is not None}


def _type(text: str) -> str:
    match = _OPTIONAL.fullmatch(text)
    plain = re.sub(r"typing\.|\b(?=(?:List|Dict|Tuple|Set)\[)", "", text)
    return f"{_type(match[1])} | None" if match else re.sub(r"\b(List|Dict|Tuple|Set)\[", lambda m: m[0].lower(), plain)


def _old_flag(option: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    made = {
        "action": _ACTIONS.get(option["action"], option["action"]) or "store",
        "field": None if option["action"] == "DeprecatedAction" else name,
        "instead": option["new_flag"],
        "value": True if option["action"] == "DeprecatedStoreTrueAction" else option["const_value"],
        "choices": option["choices"],
        "refused": True if option["error_message"] else None,
    }
    return {key: value for key, value in made.items() if value is not None}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Whole rows of what is new or other, and the names that are gone."""
    return {
        "added": {name: spec for name, spec in after.items() if name not in before},
        "removed": [name for name in before if name not in after],
        "changed": {name: spec for name, spec in after.items() if name in before and spec != before[name]},
    }


def said_of(row: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """What a row says, by a title, for a person who has to decide."""
    arguments, near = row["arguments"], raw_tables(row["near"])[0]
    changed = arguments["changed"]
    yield "new arguments", sorted(arguments["added"])
    yield "arguments that are gone", sorted(arguments["removed"])
    yield (
        "arguments with other choices",
        [n for n in sorted(changed) if changed[n].get("choices") != near[n].get("choices")],
    )
    yield "defaults that moved", [n for n in sorted(changed) if changed[n].get("default") != near[n].get("default")]
    yield "new old flags", sorted(row["old_flags"]["added"])
    yield "old flags that are gone", sorted(row["old_flags"]["removed"])
    yield "new questions", list(row.get("questions", ()))
