"""From the facts of each release to one table: the first release whole, every later one as what it changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from releases.arguments import OldFlag, read_arguments
from releases.needs import read_needs
from releases.surroundings import read_architectures, read_pages, read_variables
from releases.wheel import Wheel

SCHEMA = "sglang_hydra.versions/1"


@dataclass(frozen=True)
class Release:
    """Everything that is kept of one release, as plain values."""

    version: str
    arguments: Mapping[str, Mapping[str, Any]]
    old_flags: Mapping[str, OldFlag]
    variables: Sequence[str]
    pages: Sequence[str]
    architectures: Sequence[str]
    scripts: Mapping[str, str]
    needs: Mapping[str, Any]


def read_release(wheel: Wheel) -> Release:
    """Reads a wheel. Raises WheelError for one that is not laid out as a release that is known."""
    arguments, old = read_arguments(wheel)
    return Release(
        version=wheel.version,
        arguments={name: argument.record() for name, argument in arguments.items()},
        old_flags=old,
        variables=read_variables(wheel),
        pages=read_pages(wheel),
        architectures=read_architectures(wheel),
        scripts=wheel.scripts(),
        needs=read_needs(wheel),
    )


def make_table(releases: Sequence[Release]) -> dict[str, Any]:
    """The table over releases in their order, oldest first."""
    rows: list[dict[str, Any]] = []
    before: Release | None = None
    for release in releases:
        row: dict[str, Any] = {"version": release.version}
        row["arguments"] = _changes(before.arguments if before else {}, release.arguments)
        old = {flag: made.record() for flag, made in release.old_flags.items()}
        old_before = {flag: made.record() for flag, made in before.old_flags.items()} if before else {}
        row["old_flags"] = _changes(old_before, old)
        for key in ("variables", "pages"):
            row[key] = _listed_changes(getattr(before, key) if before else (), getattr(release, key))
        for key in ("scripts", "needs"):
            if before is None or getattr(before, key) != getattr(release, key):
                row[key] = dict(getattr(release, key))
        rows.append({key: value for key, value in row.items() if value or key == "version"})
        before = release
    return {"schema": SCHEMA, "releases": rows}


def make_architectures(releases: Sequence[Release]) -> dict[str, dict[str, list[str]]]:
    """By release, oldest first: the model classes that it added and removed. The first one added all of its own."""
    rows: dict[str, dict[str, list[str]]] = {}
    before: Sequence[str] = ()
    for release in releases:
        rows[release.version] = _listed_changes(before, release.architectures)
        before = release.architectures
    return {version: row for version, row in rows.items() if row}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    changed = {name: _difference(before[name], value) for name, value in after.items() if name in before}
    made = {
        "added": {name: value for name, value in after.items() if name not in before},
        "removed": [name for name in before if name not in after],
        "changed": {name: value for name, value in changed.items() if value},
    }
    return {key: value for key, value in made.items() if value}


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of one argument that are other than before; a key that is gone is in ``without``."""
    made: dict[str, Any] = {key: value for key, value in after.items() if key not in before or before[key] != value}
    without = [key for key in before if key not in after]
    return {**made, **({"without": without} if without else {})}


def _listed_changes(before: Sequence[str], after: Sequence[str]) -> dict[str, list[str]]:
    known, now = set(before), set(after)
    made = {
        "added": [name for name in after if name not in known],
        "removed": [name for name in before if name not in now],
    }
    return {key: value for key, value in made.items() if value}


def written(table: Mapping[str, Any]) -> str:
    """The table as JSON with one line for each name, so that a difference can be read."""
    lines = [f'{{"schema": {json.dumps(table["schema"])}, "releases": [']
    for number, row in enumerate(table["releases"]):
        parts = [f'"version": {json.dumps(row["version"])}']
        for key, value in row.items():
            if key != "version":
                parts.append(f"{json.dumps(key)}: {_block(value)}")
        closing = "," if number + 1 < len(table["releases"]) else ""
        lines.append("{" + ",\n ".join(parts) + "}" + closing)
    return "\n".join([*lines, "]}"]) + "\n"


def _block(value: Any) -> str:
    if not isinstance(value, Mapping) or not any(isinstance(inner, Mapping) for inner in value.values()):
        return _line(value)
    inner = [f"{json.dumps(key)}: {_entries(item)}" for key, item in value.items()]
    return "{" + ",\n  ".join(inner) + "}"


def _entries(value: Any) -> str:
    if not isinstance(value, Mapping):
        return _line(value)
    return "{\n   " + ",\n   ".join(f"{json.dumps(key)}: {_line(item)}" for key, item in value.items()) + "}"


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
