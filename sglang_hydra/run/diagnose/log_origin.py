"""Finds the origin of a log: the release of SGLang or another engine, and the GPUs that it names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from sglang_hydra.run.diagnose.classes import LOG_LINES

_TABLE = Path(__file__).with_name("releases.json")
_NUMBER = r"v?(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3}(?:\.?(?:post|rc|dev)\d{1,4})*)"
_STATED = tuple(re.compile(pattern.replace("{number}", _NUMBER), re.IGNORECASE) for pattern in LOG_LINES["versions"])
_NEAR = 0.9


def stated_version(text: str) -> str | None:
    """Returns the release in a line: a package's version, an image's tag or an installed path; None without one."""
    found = filter(None, (pattern.search(text[:4000]) for pattern in _STATED))
    return next((match["version"] for match in found), None)


def version_of(names: Collection[str], *, whole: bool = True) -> str | None:
    """Returns the release whose server has exactly the arguments ``names``: ``0.5.2``; ``0.4.3 to 0.4.3.post2`` when
    several have the same; ``near 0.5.3`` for a build between releases; None for another program.

    With ``whole=False``, for a cut list, the releases that have all of ``names`` count."""
    given = frozenset(name for name in names if not name.startswith("_"))
    releases = _releases()
    if not given:
        return None
    exact = [version for version, fields in releases if fields == given or (not whole and fields > given)]
    if exact:
        return exact[0] if len(exact) == 1 else f"{exact[0]} to {exact[-1]}"
    version, fields = min(releases, key=lambda release: len(release[1] ^ given))
    return f"near {version}" if len(fields & given) >= _NEAR * len(fields | given) else None


def releases_with(names: Collection[str]) -> list[str]:
    """Returns every release whose server has all arguments in ``names``, oldest first; every release for no names."""
    given = frozenset(name for name in names if not name.startswith("_"))
    return [version for version, fields in _releases() if fields >= given]


@lru_cache(maxsize=1)
def _releases() -> tuple[tuple[str, frozenset[str]], ...]:
    """Returns every release with the names of its arguments, oldest first."""
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    fields: frozenset[str] = frozenset()
    releases = []
    for change in table["releases"]:
        fields = (fields | frozenset(change["added"])) - frozenset(change["removed"])
        releases.append((change["version"], fields))
    return tuple(releases)


_LOOKED_AT = 2000
_LONGEST = 600
_OWN = re.compile(r"sglang|sgl[_-]kernel|SGLang|server_args=ServerArgs", re.IGNORECASE)
_ENGINES = tuple(LOG_LINES["other_engines"])
_PATTERN = re.compile("|".join(f"({pattern})" for pattern in LOG_LINES["other_engines"].values()))


class Others:
    """Recognizes the engine in a log's first lines. ``name`` is another engine, or None for SGLang and unknown logs."""

    def __init__(self) -> None:
        self._own = False
        self._name: str | None = None
        self._count = 0

    @property
    def name(self) -> str | None:
        return None if self._own else self._name

    def read(self, raw: str, text: str) -> None:
        """Reads one line, with and without its prefixes, because a container or an actor may carry any engine's name.

        Stops after a word of SGLang, or after ``_LOOKED_AT`` lines without another engine's."""
        if self._own or (self._name is None and self._count >= _LOOKED_AT):
            return
        self._count += 1
        if _OWN.search(text) is not None:
            self._own = True
        elif self._name is None:
            found = _PATTERN.search(raw[:_LONGEST])
            if found is not None and found.lastindex is not None:
                self._name = _ENGINES[found.lastindex - 1]


_GPU_NAMES = tuple(map(re.compile, LOG_LINES["gpus"]))
_CAPACITY = re.compile(r"total capacity of (\d{1,7}(?:\.\d{1,4})?) (GiB|MiB)")
_MOST = 64


class Devices:
    """Counts the GPUs that lines name. ``name`` and ``capacity_mib`` are the most frequent values, or None."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._capacities: Counter[float] = Counter()

    def read(self, text: str) -> None:
        if "NVIDIA" in text or "AMD" in text or "Tesla" in text:
            for pattern in _GPU_NAMES:
                found = pattern.search(text[:4000])
                if found and (len(self._names) < _MOST or found[1] in self._names):
                    self._names[found[1].replace("_", " ").strip()] += 1
        if "total capacity of" in text:
            found = _CAPACITY.search(text)
            if found and len(self._capacities) < _MOST:
                self._capacities[float(found[1]) * (1024 if found[2] == "GiB" else 1)] += 1

    @property
    def name(self) -> str | None:
        return self._names.most_common(1)[0][0] if self._names else None

    @property
    def capacity_mib(self) -> float | None:
        """Returns the GPU's memory in MiB as torch reports it: 0.6 to 1.2 % below the nominal memory of its class."""
        return self._capacities.most_common(1)[0][0] if self._capacities else None
