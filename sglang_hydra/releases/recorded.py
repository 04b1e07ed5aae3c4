"""Answers of releases that ship with this package: for the published recipes and the catalog's plain plans.

One file a release, written by tools/record_answers.py: lines of JSON, of which a plan reads those of its answer. It is
packed in parts, so that a plan unpacks few of them: the sizes of the others, the tables, then the answers by the first
digit of their keys. What many answers share is written once: ``base`` has the value that most of them give to each
argument, ``pairs`` the other ones, ``changes`` and ``steps`` the reasons. SGLang's own sentences are not recorded: of
a refusal the kind of the error and its place.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sglang_hydra.releases.case import Case
from sglang_hydra.releases.records import Record, newest_release
from sglang_hydra.rules.answer import Answer, Change, change_of, step_of

FOLDER = Path(__file__).with_name("recorded_answers")
_KIND, _PLACE = re.compile(r"[\w. -]*\w"), re.compile(r" \([^()]*:\d+\)$")
"""Of an error its type, and where it was raised: ``ValueError: ... (arg_groups/hook.py:5)``."""
_PARTS = 16
_GZIP = 16 + zlib.MAX_WBITS
_RESOLVED = FOLDER / "resolved_fields.json"
ALONE: Mapping[str, tuple[str, type]] = {
    "--host": ("host", str),
    "--port": ("port", int),
    "--enable-metrics": ("enable_metrics", bool),
    "--stream-interval": ("stream_interval", int),
    "--decode-log-interval": ("decode_log_interval", int),
    "--random-seed": ("random_seed", int),
}
"""Flags of the newest release that change no value but their own, and refuse nothing: its answer without them holds. A
test asks its wheel."""


def key_of(case: Case) -> str:
    """The key of a recorded answer: every fact that the release is given."""
    return hashlib.sha256(json.dumps(case.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def recorded_answer(record: Record, case: Case) -> Answer | None:
    """The answer to a case; None where it is not recorded, or of other wheels than the record's."""
    content = _content(record.version)
    if content is None or content.head["fingerprint"] != record.fingerprint:
        return None
    row: Any = content.answer(key_of(case))
    typed: dict[str, Any] = {}
    if row is None and record.version == newest_release():
        words, typed = _without_alone(case.argv)
        row = content.answer(key_of(replace(case, argv=words))) if typed else None
    if row is None:
        return None
    if "error" in row:
        check = None if row["check"] is None else step_of(content.item("steps", row["check"]))
        return Answer(False, stage=row["stage"], error=row["error"], check=check)
    values = {**content.head["base"], **dict(content.item("pairs", at) for at in row["values"])}
    return Answer(
        True,
        values={name: value for name, value in values.items() if name not in row["absent"]} | typed,
        environment=row["environment"],
        assumed=row["assumed"],
        changes=tuple(content.change(at) for at in row["changes"]),
    )


def _without_alone(argv: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The words without those of ``ALONE``, and what these set."""
    kept, typed, rest = [], {}, list(argv)
    while rest:
        name, kind = ALONE.get(rest[0], (None, str))
        if name is None:
            kept.append(rest.pop(0))
        else:
            rest.pop(0)
            typed[name] = True if kind is bool else kind(rest.pop(0))
    return tuple(kept), typed


def raw_answers_of(record: Record) -> dict[str, Mapping[str, Any]]:
    """Every recorded answer of a release by its key, as its child writes them."""
    content = _content(record.version)
    if content is None or content.head["fingerprint"] != record.fingerprint:
        return {}
    found: dict[str, Mapping[str, Any]] = {}
    for key, row in content.answers():
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
    """The releases of which answers ship."""
    return tuple(sorted(file.name.removesuffix(".json.gz") for file in FOLDER.glob("*.json.gz")))


def always_same(version: str) -> dict[str, Any]:
    """The arguments to which every recorded answer of a release gives the same value; none of a release without answers
    for every model."""
    content = _content(version)
    if content is None or version not in recorded_releases():
        return {}
    return {name: value for name, value in content.head["base"].items() if name not in content.head["varying"]}


@functools.lru_cache(maxsize=1)
def resolved_fields() -> frozenset[str]:
    """The arguments that the code of some release sets in any of the recorded answers."""
    return frozenset(json.loads(_RESOLVED.read_text(encoding="utf-8")))


def write_resolved_fields() -> None:
    """Writes the names for ``resolved_fields``: of all recorded answers, and those that are known of others."""
    files = [content for version in recorded_releases() if (content := _content(version)) is not None]
    names = {content.item("changes", at)[0] for content in files for at in range(content.head["changes"][1])}
    known = json.loads(_RESOLVED.read_text(encoding="utf-8")) if _RESOLVED.exists() else []
    _RESOLVED.write_text(json.dumps(sorted(names.union(known)), indent=1) + "\n", encoding="utf-8")


class _Content:
    """A file. ``head``, the first line of its tables, says of each at which line it begins and how many it has. The
    other parts are answers, each behind its key. What was read of a table is kept: many answers share it."""

    def __init__(self, packed: bytes) -> None:
        sizes = zlib.decompressobj(_GZIP)
        of_tables, *of_answers = json.loads(sizes.decompress(packed))
        begin = len(packed) - len(sizes.unused_data)
        ends = list(itertools.accumulate(of_answers, initial=begin + of_tables))
        self.lines = gzip.decompress(packed[begin : ends[0]]).decode().split("\n")
        self.head: Mapping[str, Any] = json.loads(self.lines[0])
        self._packed = [packed[start:end] for start, end in itertools.pairwise(ends)]
        self._parts: dict[int, str] = {}
        self._items: dict[int, Any] = {}
        self._changes: dict[int, Change] = {}

    def _part(self, at: int) -> str:
        """Answers with the same first digit: a line before each of them."""
        if at not in self._parts:
            self._parts[at] = "\n" + gzip.decompress(self._packed[at]).decode()
        return self._parts[at]

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
        part = self._part(int(key[0], 16))
        at = part.find(f"\n{key} ")
        return None if at < 0 else json.loads(part[at + len(key) + 2 : part.index("\n", at + 1)])

    def answers(self) -> Iterator[tuple[str, Any]]:
        """Every answer behind its key."""
        for at in range(_PARTS):
            for line in self._part(at).strip("\n").splitlines():
                key, _, row = line.partition(" ")
                yield key, json.loads(row)


@functools.lru_cache(maxsize=8)
def _content(version: str) -> _Content | None:
    file = file_of(version)
    return _Content(file.read_bytes()) if file.is_file() else None


def file_of(version: str) -> Path:
    """The file of a release."""
    return FOLDER / f"{version}.json.gz"


def write_answers(record: Record, answers: Mapping[str, Mapping[str, Any]]) -> int:
    """Writes the file of a release, from what its child answered by key. Returns its size in bytes."""
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
    varying = sorted({json.loads(pair)[0] for pair in tables["pairs"]})
    head = {"release": record.version, "fingerprint": record.fingerprint, "base": base, "varying": varying, **places}
    parts = ["\n".join([json.dumps(head, sort_keys=True), *lines]), *[""] * _PARTS]
    for key, row in rows.items():
        parts[1 + int(key[0], 16)] += f"{key} {json.dumps(row, sort_keys=True, separators=(',', ':'))}\n"
    packed_parts = [_packed(part) for part in parts]
    packed = _packed(json.dumps([len(part) for part in packed_parts]) + "\n") + b"".join(packed_parts)
    FOLDER.mkdir(exist_ok=True)
    file_of(record.version).write_bytes(packed)
    _content.cache_clear()
    return len(packed)


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), 9, mtime=0)
