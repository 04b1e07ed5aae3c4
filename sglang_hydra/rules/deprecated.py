"""Translates the six boolean flags that became values of other arguments."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule

# In SGLang's order: of several, the last one wins.
RUNNER_FLAGS = (
    ("enable_triton_kernel_moe", "triton_kernel"),
    ("enable_flashinfer_cutlass_moe", "flashinfer_cutlass"),
    ("enable_flashinfer_trtllm_moe", "flashinfer_trtllm"),
    ("enable_flashinfer_mxfp4_moe", "flashinfer_mxfp4"),
)


@rule("DEP001", (408, 412))
def translate_enable_ep_moe(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_ep_moe sets ep_size to tp_size, whatever ep_size was.
    Why: the flag is from before ep_size existed; write ep_size instead.
    Example: tp_size=8 enable_ep_moe=true -> ep_size=8"""
    if not args.enable_ep_moe:
        return None
    return Change(f"enable_ep_moe is deprecated: it means ep_size = tp_size = {args.tp_size}", ep_size=args.tp_size)


@rule("DEP002", (413, 417))
def translate_enable_deepep_moe(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_deepep_moe sets moe_a2a_backend to deepep.
    Why: the flag is from before moe_a2a_backend existed; write moe_a2a_backend=deepep instead.
    Example: enable_deepep_moe=true -> moe_a2a_backend=deepep"""
    if not args.enable_deepep_moe:
        return None
    return Change("enable_deepep_moe is deprecated: it means moe_a2a_backend=deepep", moe_a2a_backend="deepep")


@rule("DEP003", (418, 437))
def translate_runner_flags(args: ServerArgs, facts: Facts) -> Outcome:
    """What: four enable_*_moe flags set moe_runner_backend; of several, the last in upstream's order wins.
    Why: the flags are from before moe_runner_backend existed; write that instead.
    Example: enable_triton_kernel_moe=true enable_flashinfer_mxfp4_moe=true -> moe_runner_backend=flashinfer_mxfp4"""
    chosen = None
    for flag, runner in RUNNER_FLAGS:
        if getattr(args, flag):
            chosen = flag, runner
    if chosen is None:
        return None
    flag, runner = chosen
    return Change(f"{flag} is deprecated: it means moe_runner_backend={runner}", moe_runner_backend=runner)
