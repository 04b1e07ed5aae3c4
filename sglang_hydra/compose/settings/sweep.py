"""``sweep``: the points of a multirun, and their permitted cost."""

# OmegaConf evaluates these annotations, so they must be real objects and not postponed strings.
from dataclasses import dataclass, field
from typing import Any

BISECT = "bisect"
"""The value of ``search`` for a bisection at each point."""
FORECAST = "forecast"
"""The value of ``prune`` that leaves out points that cannot win by the forecast."""


@dataclass(repr=False, eq=False)
class SweepNode:
    """The grid beside the typed values, and how to run it; ``show.key_help`` explains each key. Times in seconds."""

    name: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    zip: list[Any] = field(default_factory=list)
    where: str | None = None
    prune: str | None = None
    dry_run: bool = False
    budget_gpu_hours: float | None = None
    start_seconds: float = 120.0
    point_seconds: float = 60.0
    folder: str | None = None
    retries: int = 1
    fail_fast: bool = False
    rerun: list[str] = field(default_factory=list)
    max_jobs: int | None = None
    search: str | None = None
    search_key: str = "bench.concurrency"
    search_min: float | None = None
    search_max: float | None = None
    search_steps: int = 16
    ladder_gain: float = 0.05
