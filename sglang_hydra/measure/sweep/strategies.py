"""How the next value along one key is chosen: a ladder climbs until nothing is gained, a bisection closes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sglang_hydra.compose.settings.bench import LADDER
from sglang_hydra.compose.settings.sweep import BISECT

HIGHEST = 4096
"""No value above it is tried, unless it was asked for."""


def most_steps(settings: Mapping[str, Any], workload: Mapping[str, Any]) -> int:
    """How many measurements one planned point may take: those of a ladder up to the highest rung, those that
    ``sweep.search_steps`` allows a bisection, or one."""
    if workload["concurrency"] == LADDER:
        return HIGHEST.bit_length()
    return max(1, int(settings["search_steps"])) if settings["search"] == BISECT else 1


class Told(NamedTuple):
    """What came of one value. ``good``: it was measured, is valid and meets the SLO, if there is one. ``throughput`` in
    output tokens a second; ``why`` says what was not good."""

    value: float
    good: bool
    throughput: float
    why: str = ""


class Strategy(Protocol):
    """How the next value is chosen. ``ask`` returns None once ``told`` says enough; it has no memory of its own."""

    def ask(self, told: Sequence[Told]) -> float | None:
        """The value to measure next."""

    def best(self, told: Sequence[Told]) -> Told | None:
        """The value that the search was for; None where none was good."""


@dataclass(frozen=True)
class Ladder:
    """Powers of two, until one is not good or brings less than ``gain`` more output than the best before it."""

    gain: float

    def ask(self, told: Sequence[Told]) -> float | None:
        if not told:
            return 1
        last, before = told[-1], max((item.throughput for item in told[:-1]), default=0.0)
        saturated = len(told) > 1 and last.throughput <= before * (1 + self.gain)
        return None if not last.good or saturated or last.value >= HIGHEST else last.value * 2

    def best(self, told: Sequence[Told]) -> Told | None:
        return max((item for item in told if item.good), key=lambda item: item.throughput, default=None)


@dataclass(frozen=True)
class Bisection:
    """The highest good value between ``low`` and ``high``: doubled until one is not good, then halved in between until
    neighbours (whole numbers) or rates within ``precision`` of each other are left, or ``steps`` values were tried."""

    low: float
    high: float
    steps: int
    whole: bool
    precision: float = 0.05

    def ask(self, told: Sequence[Told]) -> float | None:
        if not told:
            return self.low
        good = max((item.value for item in told if item.good), default=None)
        bad = min((item.value for item in told if not item.good), default=None)
        if len(told) >= self.steps or good is None or good >= self.high:
            return None
        if bad is None:
            return min(good * 2, self.high)
        if bad <= good or (bad - good <= 1 if self.whole else bad <= good * (1 + self.precision)):
            return None
        middle = (good + bad) / 2
        return int(middle) if self.whole else round(middle, 4)

    def best(self, told: Sequence[Told]) -> Told | None:
        return max((item for item in told if item.good), key=lambda item: item.value, default=None)
