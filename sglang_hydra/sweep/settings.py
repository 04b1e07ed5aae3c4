"""``sweep``: which points a multirun has, and what it may cost."""

# OmegaConf evaluates these annotations, so they are real objects and not postponed strings.
from dataclasses import dataclass, field
from typing import Any


@dataclass
class SweepNode:
    """The grid beside what is typed, and how it is run. Times in seconds.

    ``params`` maps keys to lists of values, or to a text in Hydra's sweep grammar; ``zip`` lists the keys that vary
    together instead of with each other; ``where`` is a constraint that every point has to meet. ``start_seconds`` and
    ``point_seconds`` are the assumptions of the estimate, which ``budget_gpu_hours`` is held against. ``folder`` is
    where the results go; without it multirun/<name>-<id>, the id made from the points themselves. ``retries`` are
    further attempts at what may pass; ``fail_fast`` ends the sweep at the first failure; ``rerun`` names the states
    (failed, invalid) that are taken again; ``max_jobs`` bounds the jobs that a launcher runs at a time.
    """

    name: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    zip: list[list[str]] = field(default_factory=list)
    where: str | None = None
    dry_run: bool = False
    budget_gpu_hours: float | None = None
    start_seconds: float = 120.0
    point_seconds: float = 60.0
    folder: str | None = None
    retries: int = 1
    fail_fast: bool = False
    rerun: list[str] = field(default_factory=list)
    max_jobs: int | None = None
