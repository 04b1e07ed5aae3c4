"""Flags that still work and that a later SGLang will not have."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Notice, Outcome, rule

_INSTEAD = {
    "enable_ep_moe": "ep_size={tp_size}",
    "enable_deepep_moe": "moe_a2a_backend=deepep",
    "enable_triton_kernel_moe": "moe_runner_backend=triton_kernel",
    "enable_flashinfer_cutlass_moe": "moe_runner_backend=flashinfer_cutlass",
    "enable_flashinfer_trtllm_moe": "moe_runner_backend=flashinfer_trtllm",
    "enable_flashinfer_mxfp4_moe": "moe_runner_backend=flashinfer_mxfp4",
}


@rule("DEP004", stage="plan")
def check_deprecated_flags(args: ServerArgs, facts: Facts) -> Outcome:
    """What: warns of the six enable_*_moe flags that became values of other arguments.
    Why: SGLang translates them and says so in its log only; enable_ep_moe overrides ep_size.
    Upstream: server_args.py 0.5.2 lines 408-437.
    Example: tp_size=8 enable_ep_moe=true -> warned
    """
    used = [flag for flag in _INSTEAD if getattr(args, flag)]
    if not used:
        return None
    return Notice(
        f"{', '.join(used)} {'is' if len(used) == 1 else 'are'} deprecated",
        *used,
        offers=" ".join(f"{flag}=false {_INSTEAD[flag].format(tp_size=args.tp_size)}" for flag in used),
    )
