"""Reads a trace of requests: arrival times, lengths, and the blocks that prompts share.

The format is that of Mooncake (github.com/kvcache-ai/Mooncake, FAST25-release/traces), which aiperf reads as
``mooncake_trace``: one JSON object per line with ``timestamp`` (milliseconds), ``input_length``, ``output_length`` and
``hash_ids``, one id per block of 512 tokens; equal ids mean equal blocks after equal prefixes."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import short

BLOCK = 512
"""Tokens per block."""
_MOST_TOKENS = 200_000_000
_LATEST_MS = 1e15
_TAKES = {
    "timestamp": "a number of milliseconds",
    **dict.fromkeys(("input_length", "output_length"), "a whole number of tokens above 0"),
    "hash_ids": "a list of whole numbers",
}
_HINT = 'one JSON object a line: {"timestamp": 0, "input_length": 512, "output_length": 64, "hash_ids": [0]}'


class Arrival(NamedTuple):
    """One request: ``at`` in seconds after the first one, lengths in tokens, the hashes of its blocks."""

    at: float
    input_len: int
    output_len: int
    blocks: tuple[int, ...] = ()


class Trace(NamedTuple):
    """The requests in order of time. ``rate`` is the mean number of arrivals per second."""

    arrivals: Sequence[Arrival]
    rate: float

    @property
    def longest(self) -> int:
        """Returns the tokens of the longest request, prompt plus answer."""
        return max(each.input_len + each.output_len for each in self.arrivals)


def read_trace(name: str, count: int | None = None) -> Trace:
    """Returns the first ``count`` requests of a trace (None: all). Raises ConfigError (BEN017) for an invalid file, and
    for more tokens than can be made at once."""
    path = Path(name).expanduser()
    try:
        seen = path.stat()
        return _read(str(path), (seen.st_mtime_ns, seen.st_size), count)
    except OSError as failure:
        raise ConfigError(_bad(f"bench.trace={path} cannot be read: {failure.strerror}")) from None


def tokens_of(arrival: Arrival, seed: int, number: int, vocab_size: int, lowest: int) -> tuple[int, ...]:
    """Returns the prompt of request ``number``: blocks with equal hashes get equal tokens, the rest is its own."""
    found: list[int] = []
    for block in arrival.blocks:
        found += _block(f"{seed}/block/{block}", vocab_size, lowest)
    own = random.Random(f"{seed}/own/{number}")
    while len(found) < arrival.input_len:
        found += _drawn(own, vocab_size, lowest)
    return tuple(found[: arrival.input_len])


@functools.lru_cache(maxsize=4096)
def _block(seed: str, vocab_size: int, lowest: int) -> tuple[int, ...]:
    return _drawn(random.Random(seed), vocab_size, lowest)


def _drawn(draw: random.Random, vocab_size: int, lowest: int) -> tuple[int, ...]:
    return tuple(draw.randrange(lowest, vocab_size) for _ in range(BLOCK))


@functools.lru_cache(maxsize=2)
def _read(name: str, stamp: object, count: int | None) -> Trace:
    try:
        lines = [(number, line) for number, line in enumerate(read_text(name).split("\n"), 1) if line.strip()]
    except ValueError:
        raise ConfigError(_bad(f"bench.trace={name} is no UTF-8 text, or too long")) from None
    rows = sorted(_row(name, number, line) for number, line in lines[:count])
    if len(rows) < 2 or rows[-1].at <= rows[0].at:
        raise ConfigError(_bad(f"{name} holds no two requests at different times"))
    if (tokens := sum(row.input_len for row in rows)) > _MOST_TOKENS:
        finding = _bad(f"{name} has {tokens:,} tokens of prompts, and {_MOST_TOKENS:,} are made at a time")
        raise ConfigError(finding.said("bench.num_prompts=1000 takes the first 1000 requests"))
    first = rows[0].at
    return Trace(tuple(row._replace(at=row.at - first) for row in rows), (len(rows) - 1) / (rows[-1].at - first))


def _row(name: str, number: int, line: str) -> Arrival:
    try:
        row = read_json(line, "dataset")
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ConfigError(_bad(f"{name}, line {number}: no JSON object"))
    at, blocks = row.get("timestamp"), row.get("hash_ids") or []
    fits = {"timestamp": isinstance(at, (int, float)) and abs(at) < _LATEST_MS}
    for key in ("input_length", "output_length"):
        fits[key] = type(row.get(key)) is int and 0 < row[key] <= _MOST_TOKENS
    fits["hash_ids"] = isinstance(blocks, list) and all(type(item) is int for item in blocks)
    for key in (key for key, it_does in fits.items() if not it_does):
        value = f"{key}={short(repr(row[key]), 40)}" if key in row else f"no {key}"
        raise ConfigError(_bad(f"{name}, line {number}: {value}; {_TAKES[key]} is needed"))
    return Arrival(float(row["timestamp"]) / 1000, row["input_length"], row["output_length"], tuple(blocks))


def _bad(message: str) -> Finding:
    return Finding("error", "BEN017", message, ("bench.trace",), _HINT)
