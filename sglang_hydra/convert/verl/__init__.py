"""Plans verl's SGLang rollout from verl's ``rollout`` node, before any worker of verl runs.

What goes here: the arguments that verl passes to SGLang, and the node of SGLang's arguments in verl's tree. What does
not: anything that imports verl, ray or SGLang.

    plan_rollout(config)    -> Rollout: the plan, the set keys, verl's own additions
    main                    the decorator between @hydra.main and verl's own task: plans, refuses, passes the keys on
    Rollout                 .plan, .engine_kwargs, .passed, .server_args, .leave(config), .as_text()
    passed.py               what verl passes itself, what it refuses, and which rollout keys never reach SGLang
    rollout.py              the keys below engine_kwargs.sglang with their origins, and the whole as one plan"""

from __future__ import annotations

from sglang_hydra.convert.verl.passed import Passed
from sglang_hydra.convert.verl.rollout import Rollout, main, plan_rollout

__all__ = ["Passed", "Rollout", "main", "plan_rollout"]
