"""Which releases have a class for a model: the names that config.json has under ``architectures``.

architectures.json is written by tools/read_releases.py: by release, the classes that it added and removed, from what
EntryClass names in each file of the release's srt/models.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from sglang_hydra.arguments.tables.order import at_least, is_candidate_of, same_release


def first_release_of(architectures: Iterable[str]) -> str | None:
    """Returns the first release that has a class for one of ``architectures``; None if no release of the table has."""
    names = frozenset(architectures)
    return next((version for version, classes in _classes().items() if names & classes), None)


def has_class(version: str, architectures: Iterable[str]) -> bool | None:
    """Returns whether ``version`` has a class for one of ``architectures``; SGLang takes the first of them that it has
    (models/registry.py, resolve_model_cls).

    None where that is unknown: for no version, one before the table, and for a class that the
    table does not have one after it.
    """
    rows = [row for row in _classes() if at_least(version, row) or is_candidate_of(version, row)]
    if not rows:
        return None
    has = bool(_classes()[rows[-1]] & frozenset(architectures))
    return None if not has and len(rows) == len(_classes()) and not same_release(version, rows[-1]) else has


def last_release() -> str:
    """Returns the last release that changed any class."""
    return list(_classes())[-1]


@functools.lru_cache(maxsize=1)
def _classes() -> Mapping[str, frozenset[str]]:
    """Returns all classes by the release that changed any, oldest first."""
    rows = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    made: dict[str, frozenset[str]] = {}
    now: frozenset[str] = frozenset()
    for version, row in rows.items():
        now = (now - frozenset(row.get("removed", ()))) | frozenset(row.get("added", ()))
        made[version] = now
    return made
