"""Reads what a log states: the release of SGLang or another engine, the GPUs, and the sizes of memory."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
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
        self.name: str | None = None
        self._left = _LOOKED_AT

    def read(self, raw: str, text: str) -> None:
        """Reads one line, with and without its prefixes, because a container or an actor may carry any engine's name.

        Stops after a word of SGLang, or after ``_LOOKED_AT`` lines without another engine's."""
        if self._left <= 0 and self.name is None:
            return
        self._left -= 1
        if _OWN.search(text) is not None:
            self.name, self._left = None, 0
        elif self.name is None and (found := _PATTERN.search(raw[:_LONGEST])) is not None:
            self.name = _ENGINES[(found.lastindex or 1) - 1]


_GPU_NAMES = tuple(map(re.compile, LOG_LINES["gpus"]))
_CAPACITY = re.compile(r"total capacity of (\d{1,7}(?:\.\d{1,4})?) (GiB|MiB)")
_MOST = 64


class Devices:
    """Counts the GPUs that lines name. ``name`` is the most frequent one, or None; ``capacity_mib`` the same of the
    memory in MiB as torch reports it: 0.6 to 1.2 % below the nominal memory of its class."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._capacities: Counter[float] = Counter()

    def read(self, text: str) -> None:
        for pattern in _GPU_NAMES if "NVIDIA" in text or "AMD" in text or "Tesla" in text else ():
            found = pattern.search(text[:4000])
            if found and (len(self._names) < _MOST or found[1] in self._names):
                self._names[found[1].replace("_", " ").strip()] += 1
        found = _CAPACITY.search(text) if "total capacity of" in text else None
        if found and len(self._capacities) < _MOST:
            self._capacities[float(found[1]) * (1024 if found[2] == "GiB" else 1)] += 1

    @property
    def name(self) -> str | None:
        return max(self._names, key=self._names.__getitem__, default=None)

    @property
    def capacity_mib(self) -> float | None:
        return max(self._capacities, key=self._capacities.__getitem__, default=None)


_GB = r"(\d{1,6}(?:\.\d{1,4})?)"
# The pattern of each number in a log line; the last matching group is the number.
_READS = {
    "before_gb": re.compile(rf"Load weight begin\. avail mem={_GB} GB"),
    "after_gb": re.compile(rf"Load weight end\..{{0,400}}?avail mem={_GB} GB"),
    "weights_gb": re.compile(rf"Load weight end\..{{0,400}}?avail mem=[\d.]{{1,11}} GB, mem usage={_GB} GB"),
    "left_gb": re.compile(rf"Memory pool end\. avail mem={_GB} GB"),
    "tokens": re.compile(r"#tokens: (\d{1,12})|max_total_num_tokens=(\d{1,12})"),
    "context": re.compile(r"context_len=(\d{1,9})"),
    "asked_gb": re.compile(rf"[Tt]ried to allocate {_GB} ?(?:GiB|MiB)"),
    "derived": re.compile(r"derived context_length \((\d{1,9})\)"),
    "host_free_gb": re.compile(rf"only have {_GB} GB free"),
}
_HEADROOM = 0.02
# The part of the free memory before loading that weights may take and still leave a useful KV cache.
_FOR_WEIGHTS = 0.75


@dataclass(slots=True)
class LogNumbers:
    """Memory of one rank in GB, None where the log gives no number: free before and after loading, weights, free after
    the KV cache was allocated, the failed allocation, free host memory. Also the tokens of the KV cache, the context
    length, and the context length from config.json."""

    before_gb: float | None = None
    after_gb: float | None = None
    weights_gb: float | None = None
    left_gb: float | None = None
    tokens: int | None = None
    context: int | None = None
    asked_gb: float | None = None
    host_free_gb: float | None = None
    derived: int | None = None

    def read(self, text: str) -> None:
        """Reads the numbers in one line."""
        for name, pattern in _READS.items():
            if (found := pattern.search(text)) and not (name == "before_gb" and self.before_gb):
                value = float(found[found.lastindex or 0])
                mib = name == "asked_gb" and found[0].endswith("MiB")
                setattr(self, name, value / 1024 if mib else value if name.endswith("_gb") else int(value))

    @property
    def least_fraction(self) -> float | None:
        """Returns the mem_fraction_static at which the KV cache holds no token: SGLang keeps ``1 - fraction`` of the
        memory free before loading out of the memory free after it (profile_max_num_token). None without both."""
        if not self.before_gb or self.after_gb is None or self.after_gb > self.before_gb:
            return None
        return 1 - self.after_gb / self.before_gb

    def lower_fraction(self, had: float) -> float | None:
        """Returns a fraction below ``had`` that leaves memory for the failed allocation, or None when the weights need
        more."""
        least = self.least_fraction
        if least is None or not self.before_gb or not self.asked_gb:
            return None
        fraction = int((had - max(self.asked_gb / self.before_gb, 0.01) - 0.01) * 100) / 100
        return fraction if fraction >= least + _HEADROOM else None

    def possible(self, fraction: float) -> bool:
        """Returns whether the weights and some KV cache fit below this fraction, by the log; True without numbers."""
        return self.least_fraction is None or fraction >= self.least_fraction + _HEADROOM

    def tokens_at(self, had: float, fraction: float) -> int | None:
        """Returns the tokens of KV cache at ``fraction``, scaled from those at ``had``; None without numbers."""
        least = self.least_fraction
        if self.tokens is None or least is None or had <= least:
            return None
        return int(self.tokens * (fraction - least) / (had - least))

    def ranks_beyond(self, had: int) -> tuple[int, float] | None:
        """Returns the tensor parallel size, a doubling of ``had``, that leaves memory for a KV cache, and the GB of
        weights per rank at that size; None when the log does not give the weights."""
        if not self.weights_gb or not self.before_gb:
            return None
        size = 2 * had
        while self.weights_gb * had / size > _FOR_WEIGHTS * self.before_gb:
            size *= 2
        return size, self.weights_gb * had / size

    def __str__(self) -> str:
        numbers = (
            (self.before_gb, "{:.1f} GB free before loading"),
            (self.weights_gb, "weights {:.1f} GB"),
            (self.tokens, "KV cache of {:,} tokens"),
            (self.left_gb, "{:.1f} GB left after it"),
            (self.context, "context {:,}"),
        )
        return ", ".join(words.format(value) for value, words in numbers if value is not None)
