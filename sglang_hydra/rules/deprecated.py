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
