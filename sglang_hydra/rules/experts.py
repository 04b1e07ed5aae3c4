"""Rules for mixture-of-experts kernels, DeepEP and the balancing of experts."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule

BUFFER_WITHOUT_REBALANCING = 1000


@rule("MOE004", (665, 668))
def no_shared_fusion_with_trtllm(args: ServerArgs, facts: Facts) -> Outcome:
    """What: moe_runner_backend=flashinfer_trtllm switches the fusion of shared experts off.
    Why: Inferred: its kernels route and run the routed experts in one step, without a slot for a fused shared one.
    Example: quantization=fp8 moe_runner_backend=flashinfer_trtllm -> disable_shared_experts_fusion=true"""
    if args.moe_runner_backend != "flashinfer_trtllm":
        return None
    return Change("flashinfer_trtllm does not support it", disable_shared_experts_fusion=True)


@rule("MOE005", (671, 674))
def no_graphs_with_normal_deepep(args: ServerArgs, facts: Facts) -> Outcome:
    """What: DeepEP with deepep_mode=normal switches CUDA graphs off.
    Why: Inferred: normal mode learns the number of tokens per expert on the CPU at every step
        (num_recv_tokens_per_expert in layers/moe/token_dispatcher/deepep.py), which cannot be captured.
    Example: moe_a2a_backend=deepep deepep_mode=normal -> disable_cuda_graph=true"""
    if args.moe_a2a_backend != "deepep" or args.deepep_mode != "normal":
        return None
    return Change("DeepEP in normal mode cannot be captured", disable_cuda_graph=True)


@rule("MOE006", (675, 678))
def spread_experts_with_deepep(args: ServerArgs, facts: Facts) -> Outcome:
    """What: DeepEP sets ep_size to tp_size, whatever ep_size was.
    Why: Inferred: its all-to-all runs over the whole tensor parallel group. MOE002 has compared ep_size by then, EPL003
        has not.
    Example: tp_size=8 moe_a2a_backend=deepep -> ep_size=8"""
    if args.moe_a2a_backend != "deepep":
        return None
    return Change(f"DeepEP: ep_size = tp_size = {args.tp_size}", ep_size=args.tp_size)


@rule("EPL001", (680, 684))
def record_experts_for_eplb(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_eplb sets expert_distribution_recorder_mode to stat, if unset.
    Why: rebalancing needs a record of the use of each expert.
    Example: tp_size=8 ep_size=8 enable_eplb=true -> expert_distribution_recorder_mode=stat"""
    if not args.enable_eplb or args.expert_distribution_recorder_mode is not None:
        return None
    return Change("EPLB needs the record", expert_distribution_recorder_mode="stat")


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


@rule("EPL004", (694, 697))
def record_experts_for_metrics(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_expert_distribution_metrics sets expert_distribution_recorder_mode to stat, if unset.
    Why: the metrics come from this record.
    Example: enable_expert_distribution_metrics=true -> expert_distribution_recorder_mode=stat"""
    if not args.enable_expert_distribution_metrics or args.expert_distribution_recorder_mode is not None:
        return None
    return Change("the metrics need the record", expert_distribution_recorder_mode="stat")


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
