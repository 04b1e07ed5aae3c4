"""The work on one server of a sweep: its points, the policy for failures, and who watches."""

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
    """Receives the events of a sweep: the live screen, the line printer, a test. This one does nothing with them."""

    def server(self, server_id: str, detail: str) -> None:
        """Reports a server's new state: starting, loading weights, ready, stopped."""

    def point(self, point: Point, state: str, detail: str) -> None:
        """Reports that a point is running, valid, invalid or failed; ``detail``: its numbers, or why not."""


class Stop:
    """Asked to stop, from a signal handler too: no point is begun any more, and the server that runs is ended. What
    was being measured is then forgotten, since its server was taken away from it."""

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
    """The policy for failures and for the end of the work. ``retries`` are further attempts at what can pass; with
    ``fail_fast`` the first failure ends all; no new point is begun at ``stop_at`` (``time.monotonic``) or later, nor
    once ``stop`` was called."""

    retries: int = 1
    fail_fast: bool = False
    stop_at: float | None = None
    stop: Stop = field(default_factory=Stop)

    @property
    def over(self) -> bool:
        return self.stop.asked or (self.stop_at is not None and time.monotonic() >= self.stop_at)


class Failed(NamedTuple):
    """Why points brought no measurement. ``retryable``: the same may succeed next time; ``fatal``: no other point of
    this server can succeed either."""

    kind: str
    error: SglangHydraError
    retryable: bool
    fatal: bool = False


@dataclass
class Work:
    """The work on one server: its ``plan``, and the points to measure on it.

    ``holds`` says whether they are still ours: a runner that was paused for longer than its lease finds that another
    has taken them over, and then keeps its results to itself. ``search`` knows the points that are searches, and
    ``settle`` waits after a server's end until another can start, which ``plan_again`` plans on a port that is free
    then. ``failed``: a point has failed for good.
    """

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
        """Returns the plan; of several servers that of what they share."""
        return self.plan if isinstance(self.plan, Plan) else self.plan.common

    @property
    def goes_on(self) -> bool:
        """Returns whether another point is to be begun."""
        over = self.policy.over or (self.failed and self.policy.fail_fast)
        return bool(self.points) and not over and self.holds()

    @property
    def given_up(self) -> bool:
        """Returns whether nothing that is found from now on counts."""
        return self.policy.stop.asked or not self.holds()
