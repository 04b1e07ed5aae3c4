"""Adopts a release that is not recorded: finds its parts that must be real, its table, and its new questions.

It runs sealed on four kinds of machine, with two small models. Its differences from the nearest release of the table
are kept beside the user's pins, where ``arguments.tables`` reads them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from sglang_hydra.arguments.every import fields_of
from sglang_hydra.arguments.parser import parser_of
from sglang_hydra.arguments.tables.table import (
    PINNED_TABLES,
    known_versions,
    nearest_recorded,
    pinned_rows,
    raw_tables,
    release,
    typed_flags,
)
from sglang_hydra.releases import wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.process import Child, ChildFailed
from sglang_hydra.releases.records import Record, pinned_file
from sglang_hydra.releases.release import LATENT, MACHINES, TINY
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.whole_file import write_whole

_NAMED = re.compile(r"sglang\.srt\.(?:layers|distributed)[\w.]*")
_PLACE = re.compile(r" \([\w/.-]+:\d+\)$")
_MOST_TURNS = 12
_LINE = ("--model-path", "tiny", "--random-seed", "42")
_MORE = ((), ("--tp", "8", "--dp", "8", "--enable-dp-attention"), ("--speculative-algorithm", "EAGLE"))


def adopt(record: Record) -> tuple[Record, Mapping[str, object]]:
    """Returns the record with the modules that must be real, and its row of the table with its ``questions``. Writes
    nothing. Raises MachineError (REL005) if the release does not run here."""
    made = record
    for _ in range(_MOST_TURNS):
        try:
            table, questions = _asked(made)
        except ChildFailed as failure:
            table, questions = None, [str(failure)]
        named = (name for text in questions for name in _NAMED.findall(text))
        new = {part for name in named if (part := _module(made, name))} - set(made.real_parts)
        if not new:
            break
        made = replace(made, real_parts=tuple(sorted({*made.real_parts, *new})))
    if table is None:
        message = f"SGLang {record.version} does not run here: {questions[0]}"
        raise MachineError(Finding("error", "REL005", message))
    near = nearest_recorded(record.version) or known_versions()[0]
    asked = dict.fromkeys(_PLACE.sub("", text) for text in questions)
    return made, {**changes_of(table, near), "questions": list(asked)}


def keep_table(version: str, row: Mapping[str, object] | None) -> None:
    """Writes the table of a release beside the pins, or removes it."""
    pins = pinned_file()
    if pins is None:
        return
    kept = {known: each for known, each in pinned_rows().items() if known != version}
    write_whole(
        Path(pins.parent, PINNED_TABLES), json.dumps(kept if row is None else {**kept, version: row}), mode=0o600
    )
    for cached in (release, parser_of, fields_of):
        cached.cache_clear()


def _asked(record: Record) -> tuple[JsonObject, list[str]]:
    """Returns the table and each unanswered question."""
    places = [place for wheel in record.wheels if (place := wheels.place_of(wheel)) is not None]
    table: JsonObject = {}
    questions: list[str] = []
    for facts in MACHINES:
        child = Child(record, places, facts)
        try:
            if not table:
                answer = child.ask({**Case((), facts).to_json(), "table": True})
                table = answer.get("values", {})
            cases = (Case((*_LINE, *more), facts, {"tiny": config}) for config in (TINY, LATENT) for more in _MORE)
            answers = [child.ask(case.to_json()) for case in cases]
        finally:
            child.end()
        questions += [answer["unanswered"] for answer in answers if "unanswered" in answer]
        if all(answer.get("ok") is False for answer in answers):
            questions.append(f"{facts['name']}: it refuses every case: {answers[0]['error']}")
    if not table:
        raise ChildFailed(f"its arguments cannot be read: {answer.get('error') or answer.get('unanswered')}")
    return table, questions


def _module(record: Record, name: str) -> str | None:
    """Returns the longest beginning of a dotted name that is a module of the wheel; None for an inert part."""
    root, words = wheels.place_of(record.wheel), name.strip(".").split(".")
    for length in range(len(words), 3, -1) if root else ():
        path = Path(str(root), *words[:length])
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return ".".join(words[:length])
    return None


_FLAG = re.compile(r"--[A-Za-z][\w-]{0,99}")
_ACTIONS = {"_StoreTrueAction": "store_true", "_StoreFalseAction": "store_false", "_StoreAction": None}
_PLAIN = ("str", "int", "float", "bool")
_READERS = {"loads": "json.loads"}
_NOTED = ("A[", "Annotated[", "typing.Annotated[", "Literal[", "typing.Literal[")
_OPTIONAL = re.compile(r"(?:typing\.)?Optional\[(.*)\]")


def changes_of(table: JsonObject, near: str) -> dict[str, object]:
    """Returns a release's row as in table.json: the differences of ``table`` from that of ``near``."""
    arguments, old = raw_tables(near)
    feeds = {flag: name for name, spec in arguments.items() for flag in typed_flags(name, spec)}
    fields = {name: spec for name, spec in table["fields"].items() if name.isidentifier()}
    specs: dict[str, dict[str, object]] = {name: {} for name in fields}
    olds: dict[str, dict[str, object]] = {}
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


def _typed(option: JsonObject, flags: list[str]) -> dict[str, object]:
    """Returns the parser's description of an argument, in the table's words."""
    action = _ACTIONS.get(option["action"], option["action"])
    if action == "BooleanOptionalAction":
        flags = [flag for flag in flags if not flag.startswith("--no-")]
    is_switch = action is not None and action.startswith(("store_", "Boolean"))
    reader = None if is_switch or option["reader"] in _PLAIN else _READERS.get(option["reader"], option["reader"])
    made = {"flags": flags, "action": action, "choices": option["choices"], "reader": reader}
    return made | ({} if is_switch else {"nargs": option["nargs"], "const": option["const"]})


def _spec(name: str, field: JsonObject, typed: JsonObject, known: JsonObject | None) -> JsonDict:
    """Returns an argument as table.json has it. Keeps the rows of the nearest release."""
    made: JsonDict = dict(known) if known else {"type": _type(field["type"])}
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
    """Returns a type in the table's words: without the help inside an annotation (0.5.14), and ``str`` for a choice of
    texts."""
    node = ast.parse(text, mode="eval").body if text.startswith(_NOTED) else None
    if isinstance(node, ast.Subscript):
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        text = type(first.value).__name__ if isinstance(first, ast.Constant) else ast.unparse(first)
    match = _OPTIONAL.fullmatch(text)
    plain = re.sub(r"typing\.|\b(?=(?:List|Dict|Tuple|Set)\[)", "", text)
    return f"{_type(match[1])} | None" if match else re.sub(r"\b(List|Dict|Tuple|Set)\[", lambda m: m[0].lower(), plain)


def _old_flag(option: JsonObject, name: str | None) -> dict[str, object]:
    made = {
        "action": _ACTIONS.get(option["action"], option["action"]) or "store",
        "field": None if option["action"] == "DeprecatedAction" else name,
        "instead": option["new_flag"],
        "value": True if option["action"] == "DeprecatedStoreTrueAction" else option["const_value"],
        "choices": option["choices"],
        "refused": True if option["error_message"] else None,
    }
    return {key: value for key, value in made.items() if value is not None}


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> JsonDict:
    """Returns the whole rows of new or different arguments, and the names of removed ones."""
    return {
        "added": {name: spec for name, spec in after.items() if name not in before},
        "removed": [name for name in before if name not in after],
        "changed": {name: spec for name, spec in after.items() if name in before and spec != before[name]},
    }


def said_of(row: JsonObject) -> Iterator[tuple[str, list[str]]]:
    """Yields the contents of a row, each with a title, for the person who decides."""
    arguments, near = row["arguments"], raw_tables(row["near"])[0]
    changed = arguments["changed"]
    yield "new arguments", sorted(arguments["added"])
    yield "arguments that are gone", sorted(arguments["removed"])
    for title, key in (("arguments with other choices", "choices"), ("defaults that moved", "default")):
        yield title, [name for name in sorted(changed) if changed[name].get(key) != near[name].get(key)]
    yield "new old flags", sorted(row["old_flags"]["added"])
    yield "old flags that are gone", sorted(row["old_flags"]["removed"])
    yield "new questions", list(row.get("questions", ()))
