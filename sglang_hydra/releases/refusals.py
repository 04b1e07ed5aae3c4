"""Finds the places where a release refuses, and the conditions there: an index of its code, recorded or read on demand.

``tools/record_refusals.py`` writes the recorded ones. Of any other release, only the file that a traceback names is
read, if its wheel was fetched."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.arguments.tables.table import known_versions, release
from sglang_hydra.releases.reading_refusals import ANY, HOLE, LOGGED, Reader, Site, names_in
from sglang_hydra.releases.records import record_of
from sglang_hydra.releases.wheels import source_text

FOLDER = Path(__file__).with_name("refusals")
_LEAST_ALONE = 17
"""Letters of a message that identify it without its place."""
_PYTHONS_OWN = ("TypeError", "AttributeError", "KeyError", "IndexError", "ImportError", "ModuleNotFoundError")
COLUMNS = ("file", "function", "line", "kind", "message", "guards")


class Found(NamedTuple):
    """A possible place of a failure. ``agrees`` is the evidence: message, place, or both; ``release`` the place's."""

    site: Site
    agrees: tuple[str, ...]
    release: str

    @property
    def names(self) -> list[str]:
        """Returns the names in its conditions, nearest first: arguments; variables (``$``), the platform (``@``)."""
        return list(dict.fromkeys(name for guard in reversed(self.site.guards) for name in names_in(guard)))


@functools.lru_cache(maxsize=2)
def recorded(version: str) -> tuple[Site, ...]:
    """Returns the recorded index of a release; empty without one."""
    file = FOLDER / f"{version}.json.gz"
    if not file.is_file():
        return ()
    content = json.loads(gzip.decompress(file.read_bytes()))
    tables, found = content["tables"], []
    for numbers in zip(*(itertools.accumulate(content[name]) for name in COLUMNS), strict=True):
        row = {name: tables[name][at] if name in tables else at for name, at in zip(COLUMNS, numbers, strict=True)}
        guards = [tables["conditions"][one] for one in row.pop("guards")]
        found.append(Site(**row, guards=guards))
    return tuple(found)


@functools.cache
def recorded_versions() -> tuple[str, ...]:
    """Returns the releases with a recorded index, the newest first."""
    names = [file.name.removesuffix(".json.gz") for file in FOLDER.glob("*.json.gz")]
    return tuple(sorted(names, key=lambda name: release_key(name) or ((), 0, 0), reverse=True))


def look_up(
    version: str | None, kind: str, message: str, place: tuple[str, str] | None, line: int = 0
) -> tuple[Found, ...]:
    """Returns the places of ``version`` that raise ``kind`` with ``message``, the best first. ``place`` is the file
    below sglang/ and the function of the innermost frame, None without a known frame, and ``line`` its line. For a
    release without a record, the recorded ones are searched, the nearest first."""
    for name, sites in _indexes(version, place):
        found = _matching(name, sites, kind, message, place, line if name == version else 0)
        if found:
            return found
    return ()


def cannot_raise(version: str | None, kind: str, place: tuple[str, str]) -> bool:
    """Returns whether the sources of ``version`` itself are known, and no statement at ``place`` raises ``kind`` with
    words that are only known at run time."""
    for name, sites in _indexes(version, place):
        if name == version and any(site.file == place[0] for site in sites):
            here = (site for site in sites if (site.file, site.function) == place and site.kind in (kind, ANY))
            return not any(not site.message.strip(HOLE + " ") for site in here)
    return False


def _indexes(version: str | None, place: tuple[str, str] | None) -> Iterator[tuple[str, Sequence[Site]]]:
    names = recorded_versions()
    if version in names:
        yield version, recorded(version)
        return
    if version in known_versions() and place is not None and (sites := _read_now(version, place[0])):
        yield version, sites
        return
    key = release_key(version or "")
    if key is not None:  # the nearest one after it, else the newest
        later = [name for name in names if (release_key(name) or key) >= key]
        names = tuple(dict.fromkeys((*reversed(later), *names)))
    for name in names:
        yield name, recorded(name)


@functools.lru_cache(maxsize=16)
def _read_now(version: str, file: str) -> tuple[Site, ...]:
    """Returns the sites of one file of a release whose sources are here."""
    found = record_of(version)
    for wheel in found.wheels if found is not None else ():
        if wheel.name == "sglang" and (text := source_text(wheel, f"sglang/{file}")) is not None:
            return tuple(Reader(release(version).arguments, [(file, text)]).sites())
    return ()


def _matching(
    name: str, sites: Sequence[Site], kind: str, message: str, place: tuple[str, str] | None, line: int
) -> tuple[Found, ...]:
    found: list[tuple[tuple[int, ...], Found]] = []
    least = 1 if place is not None else _LEAST_ALONE
    for site in sites:
        if site.kind not in (kind, LOGGED, ANY):
            continue
        here = place is not None and (site.file, site.function) == place
        letters = _letters(site.message, message) or 0
        exact = here and site.line == line and (letters > 0 or not site.message.strip(HOLE) or not message)
        if not exact and letters < (least if here else _LEAST_ALONE):
            continue
        if not here and kind in _PYTHONS_OWN:
            continue
        agrees = tuple(word for word, holds in (("message", letters), ("place", here)) if holds)
        found.append(((exact, here, letters), Found(site, agrees, name)))
    best = max((rank for rank, _ in found), default=None)
    return tuple(one for rank, one in found if rank == best)


def _letters(template: str, message: str) -> int | None:
    """Counts the letters of a recorded message that occur in ``message``, in their order; None if some do not."""
    at, count = 0, 0
    for part in template.split(HOLE):
        if part:
            at = message.find(part.rstrip(), at) if count or template.startswith(HOLE) else (
                0 if message.startswith(part.rstrip()) else -1
            )  # fmt: skip
            if at < 0:
                return None
            at += len(part.rstrip())
            count += len(re.sub(r"\W", "", part))
    return count
