"""Finds defaults that a later release changed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.table import Argument, nearest_known, release, rows
from sglang_hydra.text.json_types import Json, plain
from sglang_hydra.text.screen import shown


class ChangedDefault(NamedTuple):
    """A default that changed from ``before`` in the older of two releases to ``after``, in ``since``."""

    name: str
    before: Json
    after: Json
    since: str


@functools.lru_cache(maxsize=64)
def changed_defaults(old: str, new: str) -> Mapping[str, ChangedDefault]:
    """Returns each argument of both releases whose default differs in ``new``. Raises KeyError if unknown."""
    before, after = release(old).arguments, release(new).arguments
    found = {}
    for name, argument in after.items():
        was = before.get(name)
        if was is not None and not argument.required and _default(was) != _default(argument):
            found[name] = ChangedDefault(name, _default(was), _default(argument), _since(name, new))
    return found


def changed_default(name: str, version: str, actual: object) -> str | None:
    """Returns a clause on a default of 0.5.2 that ``version`` changed to ``actual``, or None."""
    known = nearest_known(version)
    changed = changed_defaults(SPECIFIED_VERSION, known).get(name) if known else None
    if changed is None or changed.after != actual:
        return None
    return f"its default is {shown(changed.after)} since {changed.since}; it was {shown(changed.before)}"


def _default(argument: Argument) -> object:
    return {"computed": argument.computed} if argument.computed else plain(argument.default)


def _since(name: str, version: str) -> str:
    """Returns the release that introduced the default of ``version``."""
    since = version
    for row in rows():
        changes = row.get("arguments", {})
        if "default" in changes.get("changed", {}).get(name, {}) or name in changes.get("added", {}):
            since = row["version"]
        if row["version"] == version:
            break
    return since
