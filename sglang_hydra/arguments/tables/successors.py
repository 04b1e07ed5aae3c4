"""Finds the replacement of an argument that a release removed, from the releases' own words and from notes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.arguments.tables.table import OldFlag, Release, known_versions, nearest_known, release, rows
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, json_beside

SAME = object()
"""Marks a successor that takes the old value unchanged."""

_DEEPEST = 8


class Successor(NamedTuple):
    """``name`` is the replacing argument, or None; ``value`` is its value, ``SAME`` for the old value, which ``values``
    may rename. ``advice`` says what to do where no value follows from the old one; ``also`` is the old argument whose
    default the new one needs, too."""

    name: str | None
    value: Json = SAME
    advice: str | None = None
    values: JsonObject = MappingProxyType({})
    also: str | None = None

    def value_of(self, old: object) -> Json:
        """Returns the new value for ``old``."""
        return self.value if self.value is not SAME else self.values.get(old, old) if isinstance(old, str) else old


@functools.lru_cache(maxsize=1)
def notes() -> Mapping[str, JsonObject]:
    """Reads successors.json, which explains arguments that vanish without a word of the release.

    ``to`` is the replacement (``before`` in releases that lack it yet), ``values`` the new names of its values,
    ``value`` the one that the old switch sets, ``of`` the argument whose value it takes, ``with`` another old argument
    that it needs with its default, ``advice`` what to do without a replacement, ``had`` a release before those of the
    table that has the flag. ``source`` names the release and the file that shows it."""
    known: dict[str, JsonDict] = json_beside(__file__)
    return known


def successor(name: str, version: str) -> Successor:
    """Returns the replacement for ``name`` in ``version``, which lacks it. Raises KeyError for an unknown version."""
    at = release(version)
    value: object = SAME
    also = None
    for _ in range(_DEEPEST):
        found = _step(name, at)
        value = found.value if value is SAME else value
        also = also or found.also
        if found.name is None or found.name in at.arguments:
            return found._replace(value=value, also=also)
        name = found.name
    return Successor(None, advice="its successors name each other")


def name_in(name: str, version: str) -> str | None:
    """Returns the name of an argument of any release in ``version``, or None where it has none."""
    known = nearest_known(version)
    if known is None or name in release(known).arguments:
        return name
    return successor(name, known).name


def _step(name: str, at: Release) -> Successor:
    note = notes().get(name)
    if note is not None:
        value = ("of", note["of"]) if "of" in note else note.get("value", SAME)
        if "before" in note and note["to"] not in at.arguments:
            return Successor(note["before"])
        return Successor(note.get("to"), value, note.get("advice"), note.get("values", {}), note.get("with"))
    flag = "--" + name.replace("_", "-")
    old = at.old_flags.get(flag) or _last_seen(flag, at.version)
    if old is None:
        return Successor(None)
    target = old.field or _field_of(old.instead, at)
    if target is None or target == name:
        return Successor(None, advice=f"use {old.instead} instead" if old.instead else None)
    if old.action in ("DeprecatedAliasStoreAction", "DeprecatedStoreTrueAction") or old.value is not None:
        value = SAME if old.action in ("DeprecatedAliasStoreAction", "DeprecatedStoreTrueAction") else old.value
        return Successor(target, value)
    return Successor(None, advice=f"{target} is what to use instead")


def _last_seen(flag: str, version: str) -> OldFlag | None:
    """Returns an old flag as the last release before ``version`` that knew it described it."""
    seen: JsonDict | None = None
    for row in rows():
        changes = row.get("old_flags", {})
        if flag in changes.get("added", {}):
            seen = dict(changes["added"][flag])
        if seen is not None and flag in changes.get("changed", {}):
            seen.update(changes["changed"][flag])
        if row["version"] == version:
            break
    return OldFlag(flag, **seen) if seen else None


def _field_of(flag: str | None, at: Release) -> str | None:
    """Returns the argument that a flag sets, in this release or an earlier one."""
    if flag is None:
        return None
    plain = flag.partition("=")[0].partition(" ")[0]
    for version in reversed([known for known in known_versions() if at_least(at.version, known)]):
        for argument in release(version).arguments.values():
            if plain in argument.flags:
                return argument.name
    return None
