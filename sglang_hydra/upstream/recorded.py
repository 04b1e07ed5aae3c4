"""Answers of releases that ship with this package: for the published recipes and the catalog's plain plans.

One file a release, written by tools/record_answers.py: lines of JSON, of which a plan reads those of its answer. Of
releases that are chosen only where a model needs them, VERSION.first.json.gz has the plain plans of those models. What
many answers share is written once: ``base`` has the value that most of them give to each argument, ``pairs`` the other
ones, ``changes`` and ``steps`` the reasons. SGLang's own sentences are not recorded: of a refusal the kind of the error
and its place.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_hydra.upstream.case import Answer, Case
from sglang_hydra.upstream.reasons import Change, change_of, step_of
from sglang_hydra.upstream.records import Record

FOLDER = Path(__file__).with_name("recorded_answers")
_KIND, _PLACE = re.compile(r"[\w. -]*\w"), re.compile(r" \([^()]*:\d+\)$")
"""Of an error its type, and where it was raised: ``ValueError: ... (arg_groups/hook.py:5)``."""
_RESOLVED = FOLDER / "resolved_fields.json"
_FIRST = ".first"


def key_of(case: Case) -> str:
    """The key of a recorded answer: every fact that the release is given."""
    return hashlib.sha256(json.dumps(case.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def recorded_answer(record: Record, case: Case) -> Answer | None:
    """The answer to a case; None where it is not recorded, or of other wheels than the record's."""
    content = _content(record.version)
    row = content.answer(key_of(case)) if content and content.head["fingerprint"] == record.fingerprint else None
    if content is None or row is None:
        return None

    if "error" in row:
        check = None if row["check"] is None else step_of(content.item("steps", row["check"]))
        return Answer(False, stage=row["stage"], error=row["error"], check=check)
    values = {**content.head["base"], **dict(content.item("pairs", at) for at in row["values"])}
    return Answer(
        True,
        values={name: value for name, value in values.items() if name not in row["absent"]},
        environment=row["environment"],
        assumed=row["assumed"],
        changes=tuple(content.change(at) for at in row["changes"]),
    )


def raw_answers_of(record: Record) -> dict[str, Mapping[str, Any]]:
    """Every recorded answer of a release by its key, as its child writes them."""
    content = _content(record.version)
    if content is None or content.head["fingerprint"] != record.fingerprint:
        return {}
    found: dict[str, Mapping[str, Any]] = {}
    for key, text in content.answers.items():
        row = json.loads(text)
        if "error" in row:
            check = None if row["check"] is None else content.item("steps", row["check"])
            found[key] = {**row, "ok": False, "why": {"check": check}}
            continue
        values = {**content.head["base"], **dict(content.item("pairs", at) for at in row["values"])}
        changes = [
            {"field": field, "before": before, "after": after, **({} if at is None else content.item("steps", at))}
            for field, before, after, at in (content.item("changes", at) for at in row["changes"])
        ]
        values = {name: value for name, value in values.items() if name not in row["absent"]}
        found[key] = {**row, "ok": True, "values": values, "why": {"changes": changes}}
    return found


def recorded_releases() -> tuple[str, ...]:
    """The releases of which answers for every model ship."""
    names = (file.name.removesuffix(".json.gz") for file in FOLDER.glob("*.json.gz"))
    return tuple(sorted(name for name in names if not name.endswith(_FIRST)))


def always_same(version: str) -> dict[str, Any]:
    """The arguments to which every recorded answer of a release gives the same value; none of a release without answers
    for every model."""
    content = _content(version)
    if content is None or version not in recorded_releases():
        return {}
    varying = {content.item("pairs", at)[0] for at in range(content.head["pairs"][1])}
    return {name: value for name, value in content.head["base"].items() if name not in varying}


@functools.lru_cache(maxsize=1)
def resolved_fields() -> frozenset[str]:
    """The arguments that the code of some release sets in any of the recorded answers."""
    return frozenset(json.loads(_RESOLVED.read_text(encoding="utf-8")))


def write_resolved_fields() -> None:
    """Writes the names for ``resolved_fields`` from all recorded answers."""
    versions = {file.name.removesuffix(".json.gz").removesuffix(_FIRST) for file in FOLDER.glob("*.json.gz")}
    files = [content for version in versions if (content := _content(version)) is not None]
    names = {content.item("changes", at)[0] for content in files for at in range(content.head["changes"][1])}
    _RESOLVED.write_text(json.dumps(sorted(names), indent=1) + "\n", encoding="utf-8")


class _Content:
    """A file: ``head``, its first line, says of each table at which line it begins and how many it has. The lines
    behind them are answers, each behind its key. What was read of a table is kept: many answers share it."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.head: Mapping[str, Any] = json.loads(self.lines[0])
        first = max(sum(self.head[table]) for table in ("pairs", "steps", "changes"))
        self.answers = {key: row for key, _, row in (line.partition(" ") for line in self.lines[first:-1])}
        self._items: dict[int, Any] = {}
        self._changes: dict[int, Change] = {}

    def item(self, table: str, at: int) -> Any:
        line = self.head[table][0] + at
        if line not in self._items:
            self._items[line] = json.loads(self.lines[line])
        return self._items[line]

    def change(self, at: int) -> Change:
        if at not in self._changes:
            field, before, after, step = self.item("changes", at)
            where = {} if step is None else self.item("steps", step)
            self._changes[at] = change_of({"field": field, "before": before, "after": after, **where})
        return self._changes[at]

    def answer(self, key: str) -> Any:
        row = self.answers.get(key)
        return None if row is None else json.loads(row)


@functools.lru_cache(maxsize=8)
def _content(version: str) -> _Content | None:
    file = next(filter(Path.is_file, (file_of(version), file_of(version, first=True))), None)
    return None if file is None else _Content(gzip.decompress(file.read_bytes()).decode())


def file_of(version: str, *, first: bool = False) -> Path:
    """The file of a release; ``first``: of the models alone for which it is chosen where nobody names a release."""
    return FOLDER / f"{version}{_FIRST if first else ''}.json.gz"


def write_answers(record: Record, answers: Mapping[str, Mapping[str, Any]], *, first: bool = False) -> int:
    """Writes the file of a release, from what its child answered by key. Returns its size in bytes. ``first`` as for
    ``file_of``."""
    known: dict[str, Counter[str]] = {}
    for _, answer in sorted(answers.items()):
        for name, value in answer.get("values", {}).items():
            known.setdefault(name, Counter())[json.dumps(value, sort_keys=True)] += 1
    base = {name: json.loads(values.most_common(1)[0][0]) for name, values in known.items()}
    tables: dict[str, dict[str, int]] = {"pairs": {}, "steps": {}, "changes": {}}

    def at(table: str, item: Any) -> int:
        return tables[table].setdefault(json.dumps(item, sort_keys=True, separators=(",", ":")), len(tables[table]))

    def step_at(row: Mapping[str, Any] | None) -> int | None:
        if row is None or "file" not in row:
            return None
        return at("steps", {name: row[name] for name in ("file", "line", "function", "inputs", "conditions", "via")})

    rows = {}
    for key, answer in sorted(answers.items()):
        why = answer["why"]
        if not answer["ok"]:
            kind, place = _KIND.match(str(answer["error"])), _PLACE.search(str(answer["error"]))
            error = (kind[0] if kind else "") + (place[0] if place else "")
            rows[key] = {"stage": answer["stage"], "error": error, "check": step_at(why["check"])}
            continue
        values = answer["values"]
        rows[key] = {
            "values": [at("pairs", [name, value]) for name, value in values.items() if base.get(name) != value],
            "absent": sorted(set(base) - set(values)),
            "changes": [
                at("changes", [row["field"], row["before"], row["after"], step_at(row)]) for row in why["changes"]
            ],
            "environment": answer["environment"],
            "assumed": answer["assumed"],
        }
    lines: list[str] = []
    places: dict[str, list[int]] = {}
    for name, table in tables.items():
        places[name] = [1 + len(lines), len(table)]
        lines += table
    lines += [f"{key} {json.dumps(row, sort_keys=True, separators=(',', ':'))}" for key, row in rows.items()]
    head = {"release": record.version, "fingerprint": record.fingerprint, "base": base, **places}
    text = "\n".join([json.dumps(head, sort_keys=True), *lines, ""])
    packed = gzip.compress(text.encode(), 9, mtime=0)
    FOLDER.mkdir(exist_ok=True)
    file_of(record.version, first=first).write_bytes(packed)
    _content.cache_clear()
    return len(packed)
