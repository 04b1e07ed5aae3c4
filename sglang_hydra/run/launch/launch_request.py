"""Defines a launch request: the composer, the overrides to plan, and how they were typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan


@dataclass(frozen=True)
class LaunchRequest:
    """A requested launch. ``requests`` grows by values that are decided later: a free port, the head's address.

    ``everything`` shows the whole plan. ``config_dirs`` and ``config_name`` are Hydra's config folders and primary
    config, None for ours; ``hydra_flags`` are Hydra's own flags, with their values."""

    composer: Composer
    requests: list[Request]
    everything: bool = False
    config_dirs: Sequence[str] = ()
    config_name: str | None = None
    hydra_flags: Sequence[str] = ()

    def planned_again(self, plan: Plan, engine: str | None = None, why: str = "engine=auto") -> Plan:
        """Plans the current requests with the seed of ``plan``, for its engine or for ``engine``; ``why`` is the place
        of that choice in findings."""
        rest = [request for request in self.requests if request.text.partition("=")[0] != "engine"]
        settled = Request(f"engine={engine or plan.engine.name}", why, "engine")
        return make_plan(self.composer, [*rest, settled], seed=plan.values["random_seed"])
