"""Writes the files of recorded answers that ``sglang_hydra.releases.recorded`` reads, and reads them whole."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from sglang_hydra.releases import recorded
from sglang_hydra.releases.records import Record

_KIND, _PLACE = re.compile(r"[\w. -]*\w"), re.compile(r" \([^()]*:\d+\)$")
"""Of an error its type, and where it was raised: ``ValueError: ... (arg_groups/hook.py:5)``."""
_PARTS = 16


def raw_answers_of(record: Record) -> dict[str, Mapping[str, Any]]:
    """Every recorded answer of a release by its key, as its child writes them."""
    content = recorded.content_of(record.version)
    if content is None or content.head["fingerprint"] != record.fingerprint:
        return {}
    found: dict[str, Mapping[str, Any]] = {}
    for key, row in _rows(content):
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


def _rows(content: Any) -> Iterator[tuple[str, Any]]:
    """Every answer of a file behind its key."""
    for at in range(_PARTS):
        for key, row in content.part(at).items():
            yield key, json.loads(row)


def write_resolved_fields() -> None:
    """Writes the names for ``resolved_fields``: of all recorded answers, and those that are known of others."""
    files = [
        content for version in recorded.recorded_releases() if (content := recorded.content_of(version)) is not None
    ]
    names = {content.item("changes", at)[0] for content in files for at in range(content.head["changes"][1])}
    known = json.loads(recorded.RESOLVED.read_text(encoding="utf-8")) if recorded.RESOLVED.exists() else []
    recorded.RESOLVED.write_text(json.dumps(sorted(names.union(known)), indent=1) + "\n", encoding="utf-8")


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
    recorded.FOLDER.mkdir(exist_ok=True)
    recorded.file_of(record.version).write_bytes(packed)
    recorded.content_of.cache_clear()
    return len(packed)


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), 9, mtime=0)
