"""Checks MoE kernels against quantization and the split of the experts."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule


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
