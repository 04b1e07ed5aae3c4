"""Where a log comes from: the release of SGLang, another engine, and the GPUs that it names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from sglang_hydra.run.diagnose.failure_class import LOG_LINES

_TABLE = Path(__file__).with_name("releases.json")
_NUMBER = r"v?(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3}(?:\.?(?:post|rc|dev)\d{1,4})*)"
_STATED = tuple(re.compile(pattern.replace("{number}", _NUMBER), re.IGNORECASE) for pattern in LOG_LINES["versions"])
_NEAR = 0.9


def stated_version(text: str) -> str | None:
    """Returns the release that a line names: a package's version, an image's tag, an installed path."""
    for pattern in _STATED:
        found = pattern.search(text[:4000])
        if found:
            return found["version"]
    return None


def version_of(names: Collection[str], *, whole: bool = True) -> str | None:
    """Returns the release whose server has exactly the arguments ``names``: ``0.5.2``, or ``0.4.3 to 0.4.3.post2``
    where several have the same; ``near 0.5.3`` for a build between releases; None for another program's.

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


def releases_with(names: Collection[str]) -> list[str]:
    """Returns every release whose server has all of the arguments ``names``, oldest first; of none, every release."""
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
_PATTERN = re.compile("|".join(f"({'|'.join(patterns)})" for patterns in LOG_LINES["other_engines"].values()))


class Others:
    """Looks at the first lines of a log. ``name`` is the other engine's, None where SGLang is in it or nothing says."""

    def __init__(self) -> None:
        self._own = False
        self._name: str | None = None
        self._count = 0

    @property
    def name(self) -> str | None:
        return None if self._own else self._name

    def read(self, raw: str, text: str) -> None:
        """Looks at one line, whole and without its prefixes: a container or an actor can have any engine's name.

        After a word of SGLang, or after enough lines without another engine's, it looks no more.
        """
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
    """Counts what lines say of GPUs. ``name`` and ``capacity_mib`` are what most of them say, None where none does."""

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
        """Returns the GPU's memory as torch sees it: some 0.6 to 1.2 % below the class's."""
        return self._capacities.most_common(1)[0][0] if self._capacities else None
