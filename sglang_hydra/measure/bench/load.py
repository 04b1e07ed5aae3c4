"""One load: what a checked ``bench`` node asks for, and what its identity is made from."""

from __future__ import annotations

import functools
import hashlib
import math
import os
from dataclasses import dataclass

from sglang_hydra.compose.settings.bench import BenchNode, SloNode
from sglang_hydra.measure.bench.trace import read_trace
from sglang_hydra.text.file_text import open_plain
from sglang_hydra.text.json_types import JsonDict, JsonObject

PROMPTS_PER_SLOT = 10
"""Without ``num_prompts`` each slot of the concurrency sends at least this many requests, so that the ramp at both
ends is a small part of the run."""


@dataclass
class Load(BenchNode):
    """The settings of one point, checked; ``concurrency`` is None for no bound."""

    concurrency: int | None = None

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


def load_of(node: JsonObject) -> Load:
    """Returns the load that a checked ``bench`` node describes; a ladder must have been replaced by one of its steps. A
    trace has the rate that is asked for, else its own."""
    load = Load(**{**node, "slo": SloNode(**node["slo"])})
    if load.trace is not None and load.request_rate is None:
        load.request_rate = read_trace(load.trace, load.num_prompts).rate
    if load.concurrency is None and load.request_rate is None:
        load.concurrency = 1
    return load


def workload_record(node: JsonObject) -> JsonDict:
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
