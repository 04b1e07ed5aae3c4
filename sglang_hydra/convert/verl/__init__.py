"""verl's SGLang rollout: what verl will start from its ``rollout`` node, planned before any of its workers run.

What goes here: what verl passes to SGLang, and the node of SGLang's arguments in verl's tree. What does not: anything
that imports verl, ray or SGLang.

    plan_rollout(config)    -> Rollout: the plan, the keys that were set, what verl adds itself
    main                    the decorator between @hydra.main and verl's own task: plans, refuses, hands the keys on
    Rollout                 .plan, .engine_kwargs, .passed, .server_args, .leave(config), .as_text()

    passed.py               what verl passes itself, what it refuses, and what of its rollout node never reaches SGLang
    rollout.py              what was set below engine_kwargs.sglang, by whom, and all of it as one plan
"""

from __future__ import annotations

from sglang_hydra.convert.verl.passed import Passed
from sglang_hydra.convert.verl.rollout import Rollout, main, plan_rollout

__all__ = ["Passed", "Rollout", "main", "plan_rollout"]
