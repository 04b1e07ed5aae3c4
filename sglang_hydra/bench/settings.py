"""``bench``: the load that is put on a server, as one typed node, and the checks on it."""

# OmegaConf evaluates these annotations, so they are real objects and not postponed strings.
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sglang_hydra.findings import Finding
from sglang_hydra.words import nearest

DATASETS = ("random", "file", "shared_prefix")
CLIENTS = ("auto", "builtin", "bench_serving")
CACHES = ("cold", "warm")
LADDER = "ladder"

PROMPTS_PER_SLOT = 10
"""Without ``num_prompts`` each slot of the concurrency sends at least this many requests, so that the ramp at both
ends is a small part of the run."""


@dataclass
class SloNode:
    """What a request must meet to count for goodput; null asks for nothing. Milliseconds."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None
    share: float = 0.99


@dataclass
class BenchNode:
    """The load of one client point; ``sglang_hydra.keys`` explains each key. Lengths in tokens, times in seconds."""

    dataset: str = "random"
    path: str | None = None
    input_len: int = 1024
    output_len: int = 128
    range_ratio: float = 1.0
    prefix_len: int = 0
    prefix_groups: int = 8
    concurrency: Any = None
    request_rate: float | None = None
    num_prompts: int | None = None
    min_duration: float = 10.0
    warmup: int = 1
    seed: int = 1
    repeats: int = 1
    stream: bool = True
    cache: str = "cold"
    client: str = "auto"
    quality: Any = False
    timeout: float = 600.0
    slo: SloNode = field(default_factory=SloNode)


@dataclass(frozen=True)
class Load:
    """The settings of one point, checked. The same fields as ``BenchNode``, ``concurrency`` an int, None for no
    bound."""

    dataset: str
    path: str | None
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
        """How many requests are sent at least, before ``min_duration`` asks for more."""
        if self.num_prompts is not None:
            return self.num_prompts
        return PROMPTS_PER_SLOT * (self.concurrency or math.ceil(self.request_rate or 1))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "slo": dict(self.slo)}


# What changes how a point is taken, and not what is asked of the server.
_NOT_IDENTITY = frozenset({"timeout", "repeats"})


def load_of(node: Mapping[str, Any]) -> Load:
    """The load that a checked ``bench`` node describes; a ladder must have been replaced by one of its steps."""
    values: dict[str, Any] = {item.name: node.get(item.name) for item in fields(Load)}
    if values["concurrency"] is None and values["request_rate"] is None:
        values["concurrency"] = 1
    return Load(**values)


def workload_record(node: Mapping[str, Any]) -> dict[str, Any]:
    """What the identity of a workload is made from: every setting but those that change no request, and what is in a
    file of prompts or questions, wherever it lies."""
    record = {name: value for name, value in node.items() if name not in _NOT_IDENTITY}
    for name in ("path", "quality"):
        if isinstance(record[name], str):
            record[name] = _content(record[name]) or record[name]
    return record


def _content(path: str) -> str | None:
    """A digest of what is in a file; None where it cannot be read."""
    import os

    file = os.path.expanduser(path)
    try:
        found = os.stat(file)
        return _digest(file, found.st_mtime_ns, found.st_size)
    except OSError:
        return None


@functools.lru_cache(maxsize=16)
def _digest(file: str, changed: int, size: int) -> str:
    import hashlib

    with open(file, "rb") as content:
        return hashlib.sha256(content.read()).hexdigest()


def _file_problems(node: Mapping[str, Any]) -> Iterator[Finding]:
    """Files are read before a server is started for them."""
    if node["dataset"] == "file" and node["path"]:
        from sglang_hydra.bench.prompts import file_problem

        yield from _asked(file_problem, node["path"], node["output_len"])
    if node["quality"]:
        from sglang_hydra.bench.questions import file_problem as question_problem

        yield from _asked(question_problem, node["quality"])


_read: dict[Any, tuple[Finding, ...]] = {}


def _asked(reads: Callable[..., Finding | None], source: Any, *settings: Any) -> tuple[Finding, ...]:
    """What a file's reader says of it, once as long as the file stays as it is."""
    key = (reads.__module__, source, _content(source) if isinstance(source, str) else None, *settings)
    if key not in _read:
        found = reads(source, *settings)
        _read[key] = (found,) if found else ()
    return _read[key]


def problems(node: Mapping[str, Any]) -> Iterator[Finding]:
    """Everything in a ``bench`` node that cannot be run, each with what to type."""
    for name, allowed in (("dataset", DATASETS), ("client", CLIENTS), ("cache", CACHES)):
        value = node[name]
        if value not in allowed:
            near = nearest(str(value), allowed)
            hint = f"did you mean bench.{name}={near}?" if near else f"bench.{name}={allowed[0]}"
            yield _error("BEN001", f"bench.{name}={value} is none of {', '.join(allowed)}", name, hint)
    for name in ("input_len", "output_len", "prefix_groups", "repeats"):
        yield from _at_least(node, name, 1)
    for name in ("prefix_len", "warmup", "min_duration"):
        yield from _at_least(node, name, 0)
    yield from _concurrency(node["concurrency"])
    if node["num_prompts"] is not None:
        yield from _at_least(node, "num_prompts", 1)
    for name, value in (("request_rate", node["request_rate"]), ("timeout", node["timeout"])):
        if value is not None and not 0 < value < math.inf:
            yield _error("BEN001", f"bench.{name}={value} must be above 0 and finite", name, f"bench.{name}=10")
    if not 0 < node["range_ratio"] <= 1:
        message = f"bench.range_ratio={node['range_ratio']} must be above 0 and at most 1"
        yield _error("BEN001", message, "range_ratio", "bench.range_ratio=0.8 draws lengths from 80 % to 100 %")
    if node["dataset"] == "file" and not node["path"]:
        yield _error("BEN002", "bench.dataset=file needs the file", "path", "bench.path=prompts.jsonl", "dataset")
    if node["dataset"] != "file" and node["path"]:
        message = f"bench.path={node['path']} is not read with bench.dataset={node['dataset']}"
        yield _error("BEN002", message, "path", "bench.dataset=file", "dataset")
    if node["dataset"] == "shared_prefix" and not 0 < node["prefix_len"] < node["input_len"]:
        message = f"bench.prefix_len={node['prefix_len']} must be between 1 and bench.input_len={node['input_len']}"
        hint = f"bench.prefix_len={max(1, node['input_len'] // 2)}"
        yield _error("BEN002", message, "prefix_len", hint, "input_len")
    yield from _slo(node["slo"])
    yield from _slo_unseen(node)
    yield from _file_problems(node)


def _concurrency(value: Any) -> Iterator[Finding]:
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not (value is None or value == LADDER or whole):
        message = f"bench.concurrency={value} is neither a number of requests nor {LADDER}"
        yield _error("BEN001", message, "concurrency", "bench.concurrency=8")


def _slo(slo: Mapping[str, Any]) -> Iterator[Finding]:
    for name in ("ttft_ms", "itl_ms", "e2e_ms"):
        if slo[name] is not None and not slo[name] > 0:
            message = f"bench.slo.{name}={slo[name]} must be above 0"
            yield _error("BEN001", message, f"slo.{name}", f"bench.slo.{name}=500")
    if not 0 < slo["share"] <= 1:
        message = f"bench.slo.share={slo['share']} must be above 0 and at most 1"
        yield _error("BEN001", message, "slo.share", "bench.slo.share=0.99")


def _slo_unseen(node: Mapping[str, Any]) -> Iterator[Finding]:
    """A limit on what no request of this load shows is met by all of them, and says nothing."""
    slo = node["slo"]
    unseen = [name for name in ("ttft_ms", "itl_ms") if slo[name] is not None and not node["stream"]]
    if unseen:
        message = f"bench.slo.{unseen[0]} cannot be judged with bench.stream=false: whole answers show no single tokens"
        yield _error("BEN002", message, f"slo.{unseen[0]}", "bench.stream=true, or bench.slo.e2e_ms", "stream")
    elif slo["itl_ms"] is not None and node["output_len"] == 1:
        message = "bench.slo.itl_ms cannot be judged with bench.output_len=1: nothing follows the first token"
        yield _error("BEN002", message, "slo.itl_ms", "bench.slo.ttft_ms", "output_len")


def _at_least(node: Mapping[str, Any], name: str, least: int) -> Iterator[Finding]:
    value = node[name]
    if not least <= value < math.inf:
        yield _error("BEN001", f"bench.{name}={value} must be at least {least}", name, f"bench.{name}={max(least, 1)}")


def _error(id: str, message: str, key: str, hint: str, *others: str) -> Finding:
    """``key`` is the one to change first; the ``others`` go with it."""
    return Finding("error", id, message, tuple(f"bench.{name}" for name in (key, *others)), hint)
