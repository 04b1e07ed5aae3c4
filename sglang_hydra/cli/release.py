"""``release list|fetch|remove``: the releases of SGLang whose own argument code can be run here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import typed_words
from sglang_hydra.releases.table import known_versions
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import columns, folded, print_json, room, text, write
from sglang_hydra.text.words import nearest, program

if TYPE_CHECKING:
    from sglang_hydra.upstream.records import Record

ACTIONS = ("list", "fetch", "remove", "bundle")
TRUST = "--trust"
STALE = "stale"
"""In place of a release: the folders in the cache that none uses."""
_MIB = 1 << 20


def run(invocation: Invocation) -> int:
    """What is here and what it would cost; fetching or removing the releases that are named."""
    is_trusted = any(request.text == TRUST for request in invocation.requests)
    invocation.requests = [request for request in invocation.requests if request.text != TRUST]
    action, *versions = typed_words(invocation) or ["list"]
    if action not in ACTIONS:
        hint = f"{program()} release {nearest(action, ACTIONS) or 'list'}"
        message = f"release has no {action}; it has {', '.join(ACTIONS)}"
        raise ConfigError(Finding("error", "REL006", message, hint=hint))
    if is_trusted:
        return _trust(action, versions)
    if action == "bundle":
        return _bundle(versions)
    if action == "list":
        return _list(versions, as_json=invocation.json)
    if not versions:
        message = f"release {action} takes the releases to {action}"
        raise ConfigError(Finding("error", "REL006", message, hint=f"{program()} release {action} {_newest()}"))
    if action == "remove" and versions == [STALE]:
        return _remove_stale()
    found = [_recorded(version) for version in versions]
    return _fetch(found) if action == "fetch" else _remove(found)


def _list(versions: Sequence[str], *, as_json: bool) -> int:
    from sglang_hydra.upstream import wheels
    from sglang_hydra.upstream.records import pinned_records, record_of, records

    found = [_recorded(version) for version in versions] or [*records().values(), *pinned_records().values()]
    if as_json:
        print_json({"schema": "sglang_hydra.releases/1", "releases": [_row(record) for record in found]})
        return 0
    rows = [
        (text(record.version), text(f"{size / _MIB:.0f} MiB to fetch" if size else "here"))
        for record in found
        for size in (wheels.download_size(record),)
    ]
    places = [place for place in wheels.folders() if place.is_dir()] or wheels.folders()[:1]
    write([*columns(rows), [text("")], [text(f"in {' and '.join(map(str, places))}")]])
    if not versions and (others := [version for version in known_versions() if record_of(version) is None]):
        message = f"known and not recorded: {', '.join(others)}; {program()} release fetch {TRUST} VERSION takes one"
        write(folded([text(message)], room()))
    if stale := wheels.stale_folders():
        size = sum(map(wheels.bytes_of, stale)) / _MIB
        names = ", ".join(place.name for place in stale)
        message = f"not used by this version, {size:.0f} MiB: {names}; {program()} release remove {STALE} removes them"
        write(folded([text(message)], room()))
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


def _trust(action: str, named: Sequence[str]) -> int:
    from sglang_hydra.upstream.trusted import trust

    if action != "fetch":
        hint = f"{program()} release fetch {TRUST} {' '.join(named) or _newest()}"
        raise ConfigError(
            Finding("error", "REL006", f"{TRUST} is of release fetch, not of release {action}", hint=hint)
        )
    for each in named:
        record = trust(each, lambda line: write([[text(line)]], sys.stderr))
        sha256 = record.wheel.files[0].sha256
        write([[text(f"SGLang {record.version} is trusted from now on, with the sha256 {sha256}")]])
        _fetch([record])
    return 0


def _bundle(named: Sequence[str]) -> int:
    """``release bundle DIR [VERSION...] [WHEEL...] [model=ORG/NAME...]``: for a machine without network."""
    from pathlib import Path

    from sglang_hydra.upstream import wheels
    from sglang_hydra.upstream.bundle import bundle
    from sglang_hydra.upstream.records import pinned_records

    if not named:
        hint = f"{program()} release bundle DIR {_newest()} model=openai/gpt-oss-120b"
        raise ConfigError(Finding("error", "REL006", "release bundle takes the folder to make", hint=hint))
    folder, *rest = named
    models = [word.partition("=")[2] for word in rest if word.startswith("model=")]
    files = [Path(word) for word in rest if word.endswith(".whl")]
    versions = [word for word in rest if not word.startswith("model=") and not word.endswith(".whl")]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise ConfigError(Finding("error", "REL006", f"{missing} is no file", hint="release bundle DIR ./fork.whl"))
    here = [*wheels.installed_releases(), *(each for each in pinned_records())]
    found = [_recorded(version) for version in versions or here or [_newest()]]
    size = bundle(Path(folder), found, files, models, lambda line: write([[text(line)]], sys.stderr))
    names = " ".join(record.version for record in found)
    write([[text(f"{folder}: SGLang {names}, {size / _MIB:.0f} MiB")]])
    write([[text(f"there: . {folder}/env.sh && {program()} release fetch {names}")]])
    return 0


def _remove(found: Sequence[Record]) -> int:
    from sglang_hydra.upstream import wheels
    from sglang_hydra.upstream.trusted import forget

    for record in found:
        forget(record.version)
        write([[text(f"SGLang {record.version} is removed: {wheels.remove(record) / _MIB:.0f} MiB")]])
    return 0


def _remove_stale() -> int:
    from sglang_hydra.upstream import wheels

    freed = wheels.remove_folders(wheels.stale_folders())
    write([[text(f"Wheels that no release uses are removed: {freed / _MIB:.0f} MiB")]])
    return 0


def _recorded(version: str) -> Record:
    from sglang_hydra.upstream.records import not_recorded, record_of

    record = record_of(version)
    if record is None:
        raise ConfigError(not_recorded(version))
    return record


def _newest() -> str:
    from sglang_hydra.upstream.records import records

    return list(records())[-1]
