"""Counts of many short times in little room: a client that measures its own delay must not delay itself by it."""

from __future__ import annotations

from collections import Counter

_FINE = 4  # bits kept of a number: a value is known to 1 part in 16


class Histogram:
    """Times in seconds. Mean and largest are exact; a percentile is at most 7 % too high, and never too low.

    Times are counted in microseconds.
    """

    __slots__ = ("_counts", "count", "largest", "total")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.total = self.largest = 0.0

    def add(self, seconds: float) -> None:
        seconds = max(0.0, seconds)
        micros = int(seconds * 1e6)
        shift = max(0, micros.bit_length() - 1 - _FINE)
        self._counts[((micros >> shift) + 1) << shift] += 1
        self.count += 1
        self.total += seconds
        self.largest = max(self.largest, seconds)

    def merge(self, other: Histogram) -> None:
        self._counts += other._counts
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)

    def percentile(self, share: float) -> float:
        """Seconds that ``share`` percent of the times do not exceed."""
        left = self.count * share / 100
        for micros in sorted(self._counts):
            left -= self._counts[micros]
            if left <= 0:
                return min(micros / 1e6, self.largest)
        return self.largest

    def spread_ms(self) -> dict[str, float | None]:
        """Mean, percentiles and the largest in milliseconds, as ``measures.spread`` names them."""
        if not self.count:
            return dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
        shares = {f"p{share}": self.percentile(share) * 1000 for share in (50, 90, 99)}
        return {"mean": self.total / self.count * 1000, **shares, "max": self.largest * 1000}
