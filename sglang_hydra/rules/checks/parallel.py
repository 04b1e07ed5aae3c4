"""Checks the sizes of parallel groups, and their GPUs."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule


@rule("DPA003", (640, 640))
def dp_ranks_divide_tp(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_dp_attention is refused unless dp_size divides tp_size.
    Why: the ranks of data parallel attention are equal parts of the tensor parallel group (layers/dp_attention.py).
    Example: tp_size=8 dp_size=3 enable_dp_attention=true -> refused"""
    if not args.enable_dp_attention:
        return None
    if args.dp_size == 0:
        return Refusal(
            "enable_dp_attention=true with dp_size=0",
            "dp_size",
            offers=(f"dp_size={args.tp_size}", "enable_dp_attention=false dp_size=1"),
        )
    if args.tp_size % args.dp_size == 0:
        return None
    return Refusal(
        f"DP attention needs a dp_size that divides tp_size={args.tp_size}; got dp_size={args.dp_size}",
        "dp_size",
        "tp_size",
        offers=[f"dp_size={size}" for size in _dividing(args.tp_size, args.dp_size)],
    )


@rule("PAR001", (2250, 2253), stage="check")
def nodes_divide_gpus(args: ServerArgs, facts: Facts) -> Outcome:
    """What: tp_size x pp_size must be a multiple of nnodes.
    Why: SGLang asserts it. Inferred: every node brings the same number of GPUs.
    Example: tp_size=8 nnodes=3 -> refused"""
    if args.nnodes == 0:
        return Refusal("nnodes=0: at least one node must serve", "nnodes", offers="nnodes=1")
    gpus = args.tp_size * args.pp_size
    if gpus % args.nnodes == 0:
        return None
    return Refusal(
        f"tp_size x pp_size = {gpus} GPUs cannot be shared by nnodes={args.nnodes} nodes equally",
        "nnodes",
        "tp_size",
        "pp_size",
        offers=(
            f"tp_size={max(args.tp_size // args.nnodes, 1) * args.nnodes}",
            "nnodes=1",
            *(f"nnodes={size}" for size in _dividing(gpus, args.nnodes)[:2]),
        ),
    )


@rule("PAR005", (2269, 2272), stage="check")
def dense_layers_split_or_not(args: ServerArgs, facts: Facts) -> Outcome:
    """What: moe_dense_tp_size must be 1 or null.
    Why: the dense layers of a MoE model are either whole on each GPU or split like the rest.
    Example: moe_dense_tp_size=2 -> refused"""
    # A set, like upstream's: an unhashable value fails there otherwise than in a tuple.
    if args.moe_dense_tp_size in {1, None}:
        return None
    return Refusal(
        f"moe_dense_tp_size={args.moe_dense_tp_size}; it may be 1 or null",
        "moe_dense_tp_size",
        offers=("moe_dense_tp_size=1", "moe_dense_tp_size=null"),
    )


def _dividing(whole: int, asked: int) -> list[int]:
    """Returns the divisors of ``whole`` except ``asked``, the nearest first; of two equally near, the larger."""
    sizes = [size for size in range(1, min(whole, 1024) + 1) if whole % size == 0 and size != asked]
    return sorted(sizes, key=lambda size: (abs(size - asked), -size))
