"""The messages between the client and its load processes: pickled objects over a socket, each after its length."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sglang_hydra.measure.bench.histogram import Histogram
from sglang_hydra.measure.bench.wires import Wire

_LENGTH = struct.Struct("!Q")


class Setup(NamedTuple):
    """A run that begins: where it goes, and this process's share. ``slots`` is None for an open loop without a bound,
    ``opened`` how many connections are made before it begins, ``authorities`` a file of certificates to trust."""

    url: str
    authorities: str | None
    wire: Wire
    stream: bool
    timeout: float
    slots: int | None
    opened: int


class Order(NamedTuple):
    """One request to send, ready made. One that is not ``owed`` is sent only while the run lasts."""

    content: bytes
    asked_tokens: int
    due: float | None
    owed: bool


class Orders(NamedTuple):
    """More requests; ``are_last`` says that no others follow."""

    orders: tuple[Order, ...]
    are_last: bool


class Begin(NamedTuple):
    """The run begins at ``at`` and lasts until ``until``, on ``time.monotonic``."""

    at: float
    until: float


@dataclass
class Own:
    """The measurements that a process made of itself. ``lag`` is how late its timer was, ``send`` how late it sent,
    ``wait`` how long bytes had been there when they were read (``stamped`` of the reads have that from the kernel)."""

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
    """Gives the messages in what was read, whole ones only."""

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
