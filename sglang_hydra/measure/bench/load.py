"""Defines a load from a checked ``bench`` node, and the identity of a workload."""

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
"""The fewest requests per slot of the concurrency without ``num_prompts``: the ramps at both ends are then a small part
of the run."""


@dataclass
class Load(BenchNode):
    """The checked settings of one point; ``concurrency`` is None for no bound."""

    concurrency: int | None = None

    @property
    def smallest_count(self) -> int:
        """Returns the minimum number of requests; ``min_duration`` may add more."""
        if self.trace is not None:
            return len(read_trace(self.trace, self.num_prompts).arrivals)
        if self.num_prompts is not None:
            return self.num_prompts
        return PROMPTS_PER_SLOT * (self.concurrency or math.ceil(self.request_rate or 1))


# These change how a point is measured, not the requests.
_NOT_IDENTITY = frozenset({"timeout", "repeats", "url"})


def load_of(node: JsonObject) -> Load:
    """Returns the load of a checked ``bench`` node, in which one step has replaced a ladder. A trace uses the requested
    rate, else its own."""
    load = Load(**{**node, "slo": SloNode(**node["slo"])})
    if load.trace is not None and load.request_rate is None:
        load.request_rate = read_trace(load.trace, load.num_prompts).rate
    if load.concurrency is None and load.request_rate is None:
        load.concurrency = 1
    return load


def workload_record(node: JsonObject) -> JsonDict:
    """Returns the identity of a workload: every setting that changes requests, with files of prompts or questions
    replaced by digests of their content."""
    record = {name: value for name, value in node.items() if name not in _NOT_IDENTITY}
    if record.get("trace") is None:  # an old record, from before traces
        record.pop("trace", None)
    for name in ("path", "quality", "trace"):
        if isinstance(record.get(name), str):
            record[name] = content_digest(record[name]) or record[name]
    return record


def content_digest(path: str) -> str | None:
    """Returns a digest of a file's content; None if it cannot be read."""
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
