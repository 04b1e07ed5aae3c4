"""``release list|fetch|remove``: the releases of SGLang whose own argument code can be run here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sglang_hydra.cli.shared import typed_words
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import columns, print_json, text, write
from sglang_hydra.text.words import nearest, program

if TYPE_CHECKING:
    from sglang_hydra.cli.invocation import Invocation
    from sglang_hydra.upstream.records import Record

ACTIONS = ("list", "fetch", "remove")
_MIB = 1 << 20


def run(invocation: Invocation) -> int:
    """What is here and what it would cost; fetching or removing the releases that are named."""
    action, *versions = typed_words(invocation) or ["list"]
    if action not in ACTIONS:
        hint = f"{program()} release {nearest(action, ACTIONS) or 'list'}"
        message = f"release has no {action}; it has {', '.join(ACTIONS)}"
        raise ConfigError(Finding("error", "REL006", message, hint=hint))
    if action == "list":
        return _list(versions, as_json=invocation.json)
    if not versions:
        message = f"release {action} takes the releases to {action}"
        raise ConfigError(Finding("error", "REL006", message, hint=f"{program()} release {action} {_newest()}"))
    found = [_recorded(version) for version in versions]
    return _fetch(found) if action == "fetch" else _remove(found)


def _list(versions: Sequence[str], *, as_json: bool) -> int:
    from sglang_hydra.upstream import wheels
    from sglang_hydra.upstream.records import records

    found = [_recorded(version) for version in versions] or list(records().values())
    if as_json:
        print_json({"schema": "sglang_hydra.releases/1", "releases": [_row(record) for record in found]})
        return 0
    rows = [
        (text(record.version), text(f"{size / _MIB:.0f} MiB to fetch" if size else "here"))
        for record in found
        for size in (wheels.download_size(record),)
    ]
    write([*columns(rows), [text("")], [text(f"in {wheels.folders()[0]}")]])
    return 0


def _row(record: Record) -> dict[str, Any]:
    from sglang_hydra.upstream import wheels

    missing = wheels.missing(record)
    return {
        "version": record.version,
        "here": not missing,
        "missing": [f"{wheel.name} {wheel.version}" for wheel in missing],
        "download_bytes": wheels.download_size(record),
        "disk_bytes": 0 if missing else wheels.size_on_disk(record),
        "sha256": record.wheel.files[0].sha256,
    }


def _fetch(found: Sequence[Record]) -> int:
    from sglang_hydra.upstream import wheels
    from sglang_hydra.upstream.release import prepare

    for record in found:
        wheels.fetch(record, lambda line: write([[text(line)]], sys.stderr))
        prepare(record.version)
        write([[text(f"SGLang {record.version} is here: {wheels.size_on_disk(record) / _MIB:.0f} MiB")]])
    return 0


def _remove(found: Sequence[Record]) -> int:
    from sglang_hydra.upstream import wheels

    for record in found:
        write([[text(f"SGLang {record.version} is removed: {wheels.remove(record) / _MIB:.0f} MiB")]])
    return 0


def _recorded(version: str) -> Record:
    from sglang_hydra.upstream.records import record_of, records

    record = record_of(version)
    if record is None:
        near = nearest(version, list(records()))
        hint = f"{program()} release list shows those that there are" + (f"; the nearest is {near}" if near else "")
        raise ConfigError(Finding("error", "REL001", f"SGLang {version} is not recorded", hint=hint))
    return record


def _newest() -> str:
    from sglang_hydra.upstream.records import records

    return list(records())[-1]
