"""One load: what a checked ``bench`` node asks for, and what its identity is made from."""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sglang_hydra.measure.bench.trace import read_trace
from sglang_hydra.text.file_text import open_plain

PROMPTS_PER_SLOT = 10
"""Without ``num_prompts`` each slot of the concurrency sends at least this many requests, so that the ramp at both
ends is a small part of the run."""


@dataclass(frozen=True)
class Load:
    """The settings of one point, checked. The same fields as ``BenchNode``, ``concurrency`` an int, None for no
    bound."""

    dataset: str
    path: str | None
    trace: str | None
    input_len: int
    output_len: int
    range_ratio: float
    prefix_len: int
    prefix_groups: int
    concurrency: int | None
    request_rate: float | None
    num_prompts: int | None
    min_duration: float
    warmup: int
    seed: int
    stream: bool
    cache: str
    client: str
    quality: Any
    timeout: float
    slo: Mapping[str, float | None]

    @property
    def smallest_count(self) -> int:
        """Returns the number of requests that are sent at least, before ``min_duration`` asks for more."""
        if self.trace is not None:
            return len(read_trace(self.trace, self.num_prompts).arrivals)
        if self.num_prompts is not None:
            return self.num_prompts
        return PROMPTS_PER_SLOT * (self.concurrency or math.ceil(self.request_rate or 1))


# What changes how a point is taken, and not what is asked of the server.
_NOT_IDENTITY = frozenset({"timeout", "repeats", "url"})


def load_of(node: Mapping[str, Any]) -> Load:
    """Returns the load that a checked ``bench`` node describes; a ladder must have been replaced by one of its steps. A
    trace has the rate that is asked for, else its own."""
    values: dict[str, Any] = {item.name: node.get(item.name) for item in fields(Load)}
    if values["trace"] is not None and values["request_rate"] is None:
        values["request_rate"] = read_trace(values["trace"], values["num_prompts"]).rate
    if values["concurrency"] is None and values["request_rate"] is None:
        values["concurrency"] = 1
    return Load(**values)


def workload_record(node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the identity of a workload is made from: every setting but those that change no request, and what is
    in a file of prompts or questions, wherever it lies."""
    record = {name: value for name, value in node.items() if name not in _NOT_IDENTITY}
    if record.get("trace") is None:  # as before there were traces
        record.pop("trace", None)
    for name in ("path", "quality", "trace"):
        if isinstance(record.get(name), str):
            record[name] = content_digest(record[name]) or record[name]
    return record


def content_digest(path: str) -> str | None:
    """Returns a digest of what is in a file; None where it cannot be read."""
    file = os.path.expanduser(path)
    try:
        found = os.stat(file)
        return _digest(file, found.st_mtime_ns, found.st_size)
    except OSError:
        return None


@functools.lru_cache(maxsize=16)
def _digest(file: str, changed: int, size: int) -> str:
    with open_plain(file) as content:
        return hashlib.sha256(content.read()).hexdigest()
