"""Defines the messages between the client and its load processes: length-prefixed pickled objects over a socket."""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sglang_hydra.measure.bench.wires import Wire

_FINE = 4  # bits kept of a number: a value is known to 1 part in 16


class Histogram:
    """A histogram of times in seconds. Mean and maximum are exact; a percentile is at most 7 % too high, never too low.

    It counts in microseconds."""

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
        """Returns the seconds that ``share`` percent of the times do not exceed."""
        left = self.count * share / 100
        for micros in sorted(self._counts):
            left -= self._counts[micros]
            if left <= 0:
                return min(micros / 1e6, self.largest)
        return self.largest

    def spread_ms(self) -> dict[str, float | None]:
        """Returns mean, percentiles and maximum in milliseconds, named as in ``measures.spread``."""
        shares = {f"p{share}": self.percentile(share) * 1000 for share in (50, 90, 99)}
        found = {"mean": self.total / max(1, self.count) * 1000, **shares, "max": self.largest * 1000}
        return dict(found) if self.count else dict.fromkeys(found)


_LENGTH = struct.Struct("!Q")


class Setup(NamedTuple):
    """The start of a run: its target, and this process's share. ``slots`` is None for an unbounded open loop,
    ``opened`` the number of connections made in advance, ``authorities`` a file of trusted certificates."""

    url: str
    authorities: str | None
    wire: Wire
    stream: bool
    timeout: float
    slots: int | None
    opened: int


class Order(NamedTuple):
    """One prepared request. Without ``owed`` it is sent only while the run lasts."""

    content: bytes
    asked_tokens: int
    due: float | None
    owed: bool


class Orders(NamedTuple):
    """More requests; ``are_last``: no others follow."""

    orders: tuple[Order, ...]
    are_last: bool


class Begin(NamedTuple):
    """The run lasts from ``at`` to ``until``, on ``time.monotonic``."""

    at: float
    until: float


@dataclass
class Own:
    """The delays that a process measured of itself: ``lag`` of its timer, ``send`` of its sending, ``wait`` of bytes
    before they were read (the kernel timed ``stamped`` of the ``reads``). ``cpu`` is its share of one core."""

    cpu: float = 0.0
    lag: Histogram = field(default_factory=Histogram)
    send: Histogram = field(default_factory=Histogram)
    wait: Histogram = field(default_factory=Histogram)
    reads: int = 0
    stamped: int = 0


def packed(message: object) -> bytes:
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


class Unpacker:
    """Yields the complete messages in the read bytes."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        self._rest += data
        at = 0
        while len(self._rest) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._rest, at)
            end = at + _LENGTH.size + size
            if len(self._rest) < end:
                break
            message = pickle.loads(memoryview(self._rest)[at + _LENGTH.size : end])  # written by our own process
            at = end
            yield message
        del self._rest[:at]
