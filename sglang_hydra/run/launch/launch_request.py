"""What is asked of a launch: the words to plan and compose from, and how they were typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan


@dataclass(frozen=True)
class LaunchRequest:
    """A launch as it was asked for. ``requests`` grows by what is settled on the way: a free port, the head's address.

    ``everything``: the plan is shown whole. ``config_dirs`` and ``config_name`` are where Hydra composes from, None for
    our primary config; ``hydra_flags`` are Hydra's own, with their values.
    """

    composer: Composer
    requests: list[Request]
    everything: bool = False
    config_dirs: Sequence[str] = ()
    config_name: str | None = None
    hydra_flags: Sequence[str] = ()

    def planned_again(self, plan: Plan, engine: str | None = None, why: str = "engine=auto") -> Plan:
        """Plans the requests as they are now, with the seed of ``plan`` and for its engine, or for another ``engine``;
        ``why`` is what that was settled by."""
        rest = [request for request in self.requests if request.text.partition("=")[0] != "engine"]
        settled = Request(f"engine={engine or plan.engine.name}", why, "engine")
        return make_plan(self.composer, [*rest, settled], seed=plan.values["random_seed"])
