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
    (failed, invalid) that are taken again; ``max_jobs`` bounds the servers that a launcher's jobs run at a time.

    ``search_space`` is FILE or FILE#ENTRY, a master configuration of InferenceX whose rows are points.

    ``search=bisect`` looks at each point for the highest value of ``search_key`` (bench.concurrency or
    bench.request_rate) that meets the SLO, from ``search_min`` to ``search_max`` in at most ``search_steps`` steps.
    ``search=tpe`` draws ``trials`` points out of what varies, intervals too, one after the other and each where those
    before suggest the highest goodput; the same ``seed`` draws the same.

    ``ladder_gain`` is the share of throughput that the next rung of bench.concurrency=ladder must add.
    """

    name: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    zip: list[Any] = field(default_factory=list)
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
    search_space: str | None = None
    search: str | None = None
    search_key: str = "bench.concurrency"
    search_min: float | None = None
    search_max: float | None = None
    search_steps: int = 16
    trials: int = 32
    seed: int = 1
    ladder_gain: float = 0.05
