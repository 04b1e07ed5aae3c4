"""Checks MoE kernels against quantization and the split of the experts."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.words import typed


@rule("MOE001", (652, 655))
def cutlass_runs_nvfp4(args: ServerArgs, facts: Facts) -> Outcome:
    """What: moe_runner_backend=flashinfer_cutlass is refused unless quantization=modelopt_fp4.
    Why: SGLang uses these kernels for NVFP4 weights only.
    Example: quantization=fp8 moe_runner_backend=flashinfer_cutlass -> refused"""
    if args.moe_runner_backend != "flashinfer_cutlass" or args.quantization == "modelopt_fp4":
        return None
    return Refusal(
        f"moe_runner_backend=flashinfer_cutlass needs quantization=modelopt_fp4, not {typed(args.quantization)}",
        "quantization",
        "moe_runner_backend",
        offers=("quantization=modelopt_fp4", "moe_runner_backend=auto"),
    )


@rule("MOE002", (656, 659))
def cutlass_splits_all_or_nothing(args: ServerArgs, facts: Facts) -> Outcome:
    """What: moe_runner_backend=flashinfer_cutlass is refused unless ep_size is 1 or tp_size.
    Why: Inferred: its kernels split either every expert or none. DeepEP raises ep_size only after this.
    Example: tp_size=8 ep_size=2 quantization=modelopt_fp4 moe_runner_backend=flashinfer_cutlass -> refused"""
    if args.moe_runner_backend != "flashinfer_cutlass" or args.ep_size in (1, args.tp_size):
        return None
    return Refusal(
        f"moe_runner_backend=flashinfer_cutlass needs ep_size 1 or tp_size={args.tp_size}; got {args.ep_size}",
        "ep_size",
        "moe_runner_backend",
        offers=(f"ep_size={args.tp_size}", "ep_size=1"),
    )


@rule("MOE003", (661, 664))
def trtllm_runs_fp4_and_fp8(args: ServerArgs, facts: Facts) -> Outcome:
    """What: moe_runner_backend=flashinfer_trtllm is refused unless quantization is modelopt_fp4 or fp8.
    Why: its kernels take these weights only. SGLang ignores the checkpoint's own quantization here: set quantization.
    Example: gpu=b200 moe_runner_backend=flashinfer_trtllm -> refused"""
    if args.moe_runner_backend != "flashinfer_trtllm" or args.quantization in ("modelopt_fp4", "fp8"):
        return None
    return Refusal(
        f"moe_runner_backend=flashinfer_trtllm needs quantization modelopt_fp4 or fp8, not {typed(args.quantization)}",
        "quantization",
        "moe_runner_backend",
        offers=("quantization=modelopt_fp4", "quantization=fp8", "moe_runner_backend=auto"),
    )


@rule("EPL003", (691, 692))
def eplb_has_experts_to_move(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_eplb is refused with an ep_size of 1.
    Why: Inferred: experts are balanced between the ranks of expert parallelism, of which there must be two.
    Example: tp_size=8 enable_eplb=true -> refused"""
    if not args.enable_eplb or args.ep_size > 1:
        return None
    return Refusal(
        f"enable_eplb=true needs ep_size above 1; got {args.ep_size}",
        "ep_size",
        "enable_eplb",
        offers=(*_sizes_of(args.tp_size), "enable_eplb=false"),
    )


def _sizes_of(ranks: int) -> list[str]:
    """Returns group sizes of these ranks for the experts, the largest first; for a single rank, more ranks."""
    if ranks == 1:
        return [f"tp_size={size} ep_size={size}" for size in (8, 4, 2)]
    return [f"ep_size={ranks // parts}" for parts in range(1, min(ranks, 64)) if ranks % parts == 0]
