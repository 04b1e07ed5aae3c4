"""Rules for data parallel attention and pipelines."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule
from sglang_hydra.text.json_types import Json

CONSERVATIVENESS_FACTOR = 0.3


@rule("DPA002", (637, 639))
def schedule_boldly_with_dp_attention(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_dp_attention multiplies schedule_conservativeness by 0.3.
    Why: Inferred: each rank schedules for itself and sees a part of the requests only.
    Example: tp_size=8 dp_size=8 enable_dp_attention=true -> schedule_conservativeness=0.3"""
    if not args.enable_dp_attention:
        return None
    return Change(
        f"DP attention: x {CONSERVATIVENESS_FACTOR}",
        schedule_conservativeness=args.schedule_conservativeness * CONSERVATIVENESS_FACTOR,
    )


@rule("DPA004", (641, 644))
def share_chunks_among_dp_ranks(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_dp_attention divides chunked_prefill_size by dp_size, rounding down; -1 (off) stays -1.
    Why: SGLang's warning says that this avoids MoE kernel issues. Inferred: the ranks' chunks meet in one MoE layer,
        whose kernels take a limited number of tokens.
    Example: gpu=h200 tp_size=8 dp_size=8 enable_dp_attention=true -> chunked_prefill_size=1024"""
    if not args.enable_dp_attention or args.dp_size == 0:
        return None
    # Neither DPA002 nor this rule may run twice over the same values: a launch passes the requested values.
    whole: Json = args.chunked_prefill_size
    return Change(f"DP attention: {whole} // {args.dp_size} ranks", chunked_prefill_size=whole // args.dp_size)
