"""``bench``: the load on a server, as one typed node."""

# OmegaConf evaluates these annotations, so they must be real objects and not postponed strings.
from dataclasses import dataclass, field
from typing import Any

DATASETS = ("random", "file", "shared_prefix")
CLIENTS = ("auto", "builtin")
"""Both mean our own client; results and commands of earlier versions contain either."""
CACHES = ("cold", "warm")
LADDER = "ladder"


@dataclass(repr=False, eq=False)
class SloNode:
    """The limits that a request must meet to count for goodput, in milliseconds; null sets no limit."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None
    share: float = 0.99


@dataclass(repr=False, eq=False)
class BenchNode:
    """The load of one client point; ``show.key_help`` explains each key. Lengths in tokens, times in seconds."""

    dataset: str = "random"
    path: str | None = None
    trace: str | None = None
    url: str | None = None
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
