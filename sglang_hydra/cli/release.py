"""``release list|fetch|remove|use``: manages the SGLang releases that can run here, and the chosen one."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglang_hydra.arguments.accepted import unknown_version
from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.arguments.tables.table import known_versions
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import typed_words
from sglang_hydra.releases import wheels
from sglang_hydra.releases.adopting import adopt, keep_table, said_of
from sglang_hydra.releases.records import (
    Record,
    default_release,
    newest_release,
    not_recorded,
    pinned_records,
    record_of,
    records,
    release_named,
)
from sglang_hydra.releases.release import prepare
from sglang_hydra.releases.trusted import PACKAGES, bundle, forget, pin, trust
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.screen import columns, folded, print_json, text, write
from sglang_hydra.text.user_settings import KEYS, settings, use_release
from sglang_hydra.text.words import nearest, program

_VERSION = re.compile(r"^(?:sglang[=@-]+)?v?(?=\d)")
ACTIONS = ("list", "fetch", "remove", "bundle", "use", "adopt")
_OTHER_ACTIONS = {"install": "fetch", "add": "fetch", "download": "fetch", "get": "fetch", "uninstall": "remove"}
_OTHER_ACTIONS |= {"delete": "remove", "set": "use", "select": "use", "ls": "list", "show": "list"}
NONE = "--none"
TRUST = "--trust"
STALE = "stale"
"""In place of a release: the cache folders that no release uses."""
_MIB = 1 << 20


def run(invocation: Invocation) -> int:
    """Shows which releases are here and how large the others are; fetches or removes the named ones."""
    is_trusted = any(request.text == TRUST for request in invocation.requests)
    is_none = any(request.text == NONE for request in invocation.requests)
    invocation.requests = [request for request in invocation.requests if request.text not in (TRUST, NONE)]
    action, *versions = [release_named(_VERSION.sub("", word)) for word in typed_words(invocation)] or ["list"]
    if action not in ACTIONS:
        meant = _OTHER_ACTIONS.get(action) or nearest(action, ACTIONS)
        words = [meant, *versions] if meant else ["fetch", action] if release_key(action) else ["list"]
        raise _wrong(f"release has no {action}; it has {', '.join(ACTIONS)}", f"{program()} release {' '.join(words)}")
    if is_none and action != "use":
        raise _wrong(f"{NONE} belongs to release use", f"{program()} release use {NONE}")
    if action == "use":
        return _use(versions, is_none=is_none)
    if is_trusted or action == "adopt":
        return _trust(action, versions)
    if action == "bundle":
        return _bundle(versions)
    if action == "list":
        return _list(versions, as_json=invocation.has("json"))
    if not versions:
        hint = f"{program()} release {action} {newest_release()}"
        raise _wrong(f"release {action} takes the releases to {action}", hint)
    if action == "remove" and versions == [STALE]:
        freed = wheels.remove_folders(wheels.stale_folders()) / _MIB
        write([[text(f"Wheels that no release uses are removed: {freed:.0f} MiB")]])
        return 0
    found = [_recorded(version) for version in versions]
    if action == "fetch" and invocation.has("offline") and any(map(wheels.missing, found)):
        raise _wrong(
            "release fetch fetches, and --offline fetches nothing", f"{program()} release bundle DIR, elsewhere"
        )
    return _fetch(found) if action == "fetch" else _remove(found)


def _wrong(message: str, hint: str | tuple[str, ...]) -> ConfigError:
    return ConfigError.of("REL006", message, hint=hint)


def _list(versions: Sequence[str], *, as_json: bool) -> int:
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
        write(folded([text(message)]))
    if stale := wheels.stale_folders():
        size = sum(map(wheels.bytes_of, stale)) / _MIB
        names = ", ".join(place.name for place in stale)
        message = f"not used by this version, {size:.0f} MiB: {names}; {program()} release remove {STALE} removes them"
        write(folded([text(message)]))
    return 0


def _row(record: Record) -> dict[str, object]:
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
    for record in found:
        wheels.fetch(record, lambda line: write([[text(line)]], sys.stderr))
        prepare(record.version)
        write([[text(f"SGLang {record.version} is here: {wheels.size_on_disk(record) / _MIB:.0f} MiB")]])
    return 0


def _trust(action: str, named: Sequence[str]) -> int:
    if action not in ("fetch", "adopt"):
        hint = f"{program()} release fetch {TRUST} {' '.join(named) or newest_release()}"
        raise _wrong(f"{TRUST} belongs to release fetch, not to release {action}", hint)
    for each in named:
        record = trust(each, lambda line: write([[text(line)]], sys.stderr))
        sha256 = record.wheel.files[0].sha256
        write([[text(f"SGLang {record.version} is trusted from now on, with the sha256 {sha256}")]])
        wheels.fetch(record, lambda line: write([[text(line)]], sys.stderr))
        adopted, row = adopt(record)
        pin(adopted)
        keep_table(record.version, row)
        _fetch([adopted])
        _say(record.version, row, whole=action == "adopt")
    return 0


def _say(version: str, row: Mapping[str, object], *, whole: bool) -> None:
    """Prints how a trusted release differs from the one before; ``whole`` with each name, which a person must decide on
    before the release is recorded."""
    said = [(title, names) for title, names in said_of(row) if names]
    counts = ", ".join(f"{len(names)} {title}" for title, names in said) or "its arguments are the same"
    write(folded([text(f"SGLang {version} is not recorded; compared with {row['near']}: {counts}")]))
    for title, names in said if whole else ():
        write([[text(f"{title}:")], *folded([text(f"  {', '.join(names)}")])])


def _bundle(named: Sequence[str]) -> int:
    """Runs ``release bundle DIR [VERSION...] [WHEEL...] [model=ORG/NAME...]``, for a machine without network."""
    if not named:
        hint = f"{program()} release bundle DIR {newest_release()} model=openai/gpt-oss-120b"
        raise _wrong("release bundle takes the folder to make", hint)
    folder, *rest = named
    models = [word.partition("=")[2] for word in rest if word.startswith("model=")]
    files = [Path(word) for word in rest if word.endswith(".whl")]
    versions = [word for word in rest if not word.startswith("model=") and not word.endswith(".whl")]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise _wrong(f"{missing} is no file", "release bundle DIR ./fork.whl")
    here = [*wheels.installed_releases(), *(each for each in pinned_records())]
    found = [_recorded(version) for version in versions or here or [newest_release()]]
    size = bundle(Path(folder), found, files, models, lambda line: write([[text(line)]], sys.stderr)) / _MIB
    write([[text(f"{folder}: SGLang {' '.join(record.version for record in found)}, {size:.0f} MiB")]])
    there = [record.version for record in found if record.version not in pinned_records()]
    words = [" ".join(["release fetch", *there])] if there else []
    for pinned in (record for record in found if record.version in pinned_records()):
        words.append(f"release fetch {TRUST} {folder}/{PACKAGES}/{pinned.wheel.files[0].name}")
    commands = " && ".join(f"{program()} {each}" for each in words)
    write([[text(f"there: . {folder}/env.sh && {commands}")]])
    return 0


def _remove(found: Sequence[Record]) -> int:
    for record in found:
        forget(record.version)
        keep_table(record.version, None)
        write([[text(f"SGLang {record.version} is removed: {wheels.remove(record) / _MIB:.0f} MiB")]])
    return 0


def _use(versions: Sequence[str], *, is_none: bool) -> int:
    """Runs ``release use VERSION``: sets the release for plans if none is named and none is installed."""
    if len(versions) > 1 or (versions and is_none):
        hint = f"{program()} release use {versions[0]}", f"{program()} release use {NONE}"
        raise _wrong("release use takes one release", hint)
    if versions and record_of(versions[0]) is None and versions[0] not in known_versions():
        raise ConfigError(unknown_version(versions[0]))
    if versions or is_none:
        file = use_release(versions[0] if versions else None)
        write([[text(f"{file}: {f'release: {versions[0]}' if versions else 'no preferred release'}")]])
    chosen = settings().release
    why = f"as {chosen.place} says" if chosen else "the newest recorded one"
    write([[text(f"Where no release is named and none is installed, plans are for SGLang {default_release()}, {why}")]])
    if versions and chosen is not None and chosen.place == KEYS["release"].variable:
        write([[text(f"{chosen.place} is set and overrides the file")]])
    return 0


def _recorded(version: str) -> Record:
    record = record_of(version)
    if record is None:
        raise ConfigError(not_recorded(version))
    return record
