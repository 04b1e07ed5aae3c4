"""Which release of SGLang wrote a log: what the log says of it, or the arguments that its server has."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

_TABLE = Path(__file__).with_name("releases.json")
_NUMBER = r"v?(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3}(?:\.?(?:post|rc|dev)\d{1,4})*)"
_STATED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\bsglang version:? {_NUMBER}",
        rf"^\s*sglang: {_NUMBER}",
        rf"\bsglang(?:\[[\w,-]{{1,40}}\])?=={_NUMBER}",
        rf"\bsglang-{_NUMBER}(?:\.dist-info|-py3|-cp3|\.egg|\b(?!-))",
        rf"lmsysorg/sglang:{_NUMBER}",
        rf"\bsglang {_NUMBER}\b",
        rf"\bsglang[- ]v{_NUMBER}\b",
    )
)
_NEAR = 0.9


def stated_version(text: str) -> str | None:
    """The release that a line names: a package's version, an image's tag, an installed path."""
    for pattern in _STATED:
        found = pattern.search(text[:4000])
        if found:
            return found["version"]
    return None


def version_of(names: Collection[str], *, whole: bool = True) -> str | None:
    """The release whose server has exactly the arguments ``names``: ``0.5.2``, or ``0.4.3 to 0.4.3.post2`` where
    several have the same; ``near 0.5.3`` for a build between releases; None for another program's.

    ``whole`` is False where the list was cut: then releases that have all of ``names`` count.
    """
    given = frozenset(name for name in names if not name.startswith("_"))
    releases = _releases()
    if not given:
        return None
    if whole:
        exact = [version for version, fields in releases if fields == given]
    else:
        exact = [version for version, fields in releases if fields >= given]
    if exact:
        return exact[0] if len(exact) == 1 else f"{exact[0]} to {exact[-1]}"
    version, fields = min(releases, key=lambda release: len(release[1] ^ given))
    return f"near {version}" if len(fields & given) >= _NEAR * len(fields | given) else None


@lru_cache(maxsize=1)
def _releases() -> tuple[tuple[str, frozenset[str]], ...]:
    """Every release with the names of its arguments, oldest first."""
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    fields: frozenset[str] = frozenset()
    releases = []
    for change in table["releases"]:
        fields = (fields | frozenset(change["added"])) - frozenset(change["removed"])
        releases.append((change["version"], fields))
    return tuple(releases)
