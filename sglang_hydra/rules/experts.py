"""Rules for mixture-of-experts kernels, DeepEP and the balancing of experts."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule

BUFFER_WITHOUT_REBALANCING = 1000


@rule("EPL002", (686, 689))
def choose_ep_dispatch(args: ServerArgs, facts: Facts) -> Outcome:
    """What: ep_dispatch_algorithm, if unset, is static with EPLB or any init_expert_location (trivial by default).
    Why: Inferred: copies of an expert need a rule for which one a token goes to.
    Example: gpu=h100 -> ep_dispatch_algorithm=static"""
    if args.ep_dispatch_algorithm is not None:
        return None
    if args.enable_eplb:
        return Change("EPLB is on", ep_dispatch_algorithm="static")
    if args.init_expert_location is not None:
        return Change(f"init_expert_location is {args.init_expert_location}", ep_dispatch_algorithm="static")
    return None


@rule("EPL005", (699, 703))
def size_expert_record(args: ServerArgs, facts: Facts) -> Outcome:
    """What: expert_distribution_recorder_buffer_size in forward passes, if unset, is eplb_rebalance_num_iterations, or
        1000 if that is null and a recorder mode is set.
    Why: Inferred: a rebalancing looks at all passes since the last one; eplb_manager.py asserts that the record is not
        longer.
    Example: eplb_rebalance_num_iterations=500 -> expert_distribution_recorder_buffer_size=500"""
    if args.expert_distribution_recorder_buffer_size is not None:
        return None
    iterations = args.eplb_rebalance_num_iterations
    if iterations is not None:
        return Change("eplb_rebalance_num_iterations", expert_distribution_recorder_buffer_size=iterations)
    if args.expert_distribution_recorder_mode is not None:
        return Change(
            f"recorder mode {args.expert_distribution_recorder_mode}",
            expert_distribution_recorder_buffer_size=BUFFER_WITHOUT_REBALANCING,
        )
    return None
