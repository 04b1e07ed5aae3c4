"""Defines the work on one server of a sweep: its points, the policy for failures, and its watcher."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.measure.sweep.points import Point
from sglang_hydra.measure.sweep.search import Search
from sglang_hydra.measure.sweep.store import Store
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.servers import Topology
from sglang_hydra.run.launch.local import LocalServer
from sglang_hydra.text.errors import SglangHydraError


class Watcher:
    """Receives the events of a sweep: for the live screen, the line printer, a test. This class ignores them."""

    def server(self, server_id: str, detail: str) -> None:
        """Reports a server's new state: starting, loading weights, ready, stopped."""

    def point(self, point: Point, state: str, detail: str) -> None:
        """Reports that a point is running, valid, invalid or failed; ``detail`` has its numbers or the reason."""


class Stop:
    """A stop request, also from a signal handler: no further point begins, and the running server ends. The current
    measurement is dropped, because it lost its server."""

    def __init__(self) -> None:
        self.asked = False
        self.server: LocalServer | None = None

    def __call__(self) -> None:
        self.asked = True
        server = self.server
        if server is not None:
            server.request_stop()


@dataclass(frozen=True)
class Policy:
    """The policy for failures and for the end of the work. ``retries`` are further attempts at failures that may pass.
    With ``fail_fast`` the first failure ends everything. No point begins at ``stop_at`` (``time.monotonic``) or later,
    or after ``stop`` was called."""

    retries: int = 1
    fail_fast: bool = False
    stop_at: float | None = None
    stop: Stop = field(default_factory=Stop)

    @property
    def over(self) -> bool:
        return self.stop.asked or (self.stop_at is not None and time.monotonic() >= self.stop_at)


class Failed(NamedTuple):
    """The reason why points have no measurement. ``retryable``: the same may succeed next time; ``fatal``: no other
    point of this server can succeed."""

    kind: str
    error: SglangHydraError
    retryable: bool
    fatal: bool = False


@dataclass
class Work:
    """The work on one server: its ``plan``, and the points to measure on it.

    ``holds`` says whether the points are still ours: a runner that paused for longer than its lease has lost them, and
    drops its results. ``search`` returns the search of a point, if any. ``settle`` waits after a server's end until
    another can start; ``plan_again`` then plans it on a free port. ``failed``: a point has failed for good."""

    store: Store
    plan: Plan | Topology
    points: list[Point]
    policy: Policy
    watcher: Watcher
    gpu_ids: tuple[int, ...] = ()
    gpus: int | None = None
    holds: Callable[[], bool] = field(default=lambda: True)
    search: Callable[[Point], Search | None] = field(default=lambda point: None)
    settle: Callable[[], None] = field(default=lambda: None)
    plan_again: Callable[[], Plan | Topology] | None = None
    attempts: dict[str, int] = field(default_factory=dict)
    failed: bool = False

    @property
    def folder(self) -> Path:
        return self.store.server(self.server_id)

    @property
    def server_id(self) -> str:
        return self.plan.server_id if isinstance(self.plan, Plan) else self.plan.topology_id

    @property
    def common(self) -> Plan:
        """Returns the plan; for several servers the plan of their common part."""
        return self.plan if isinstance(self.plan, Plan) else self.plan.common

    @property
    def goes_on(self) -> bool:
        """Returns whether another point may begin."""
        over = self.policy.over or (self.failed and self.policy.fail_fast)
        return bool(self.points) and not over and self.holds()

    @property
    def given_up(self) -> bool:
        """Returns whether further results are dropped."""
        return self.policy.stop.asked or not self.holds()
