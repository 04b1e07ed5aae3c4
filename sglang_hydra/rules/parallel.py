"""Rules for data parallel attention and pipelines."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule
from sglang_hydra.text.json_types import Json

CONSERVATIVENESS_FACTOR = 0.3


@rule("DPA001", (634, 635))
def no_dp_attention_with_one_rank(args: ServerArgs, facts: Facts) -> Outcome:
    """What: dp_size=1 switches enable_dp_attention off.
    Why: one rank has nothing to divide. Earlier rules, of memory and of gpt-oss, still see the switch on.
    Example: tp_size=8 enable_dp_attention=true -> enable_dp_attention=false"""
    if args.dp_size != 1:
        return None
    return Change("dp_size is 1", enable_dp_attention=False)


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


@rule("PIP001", (705, 710))
def no_overlap_with_pipeline(args: ServerArgs, facts: Facts) -> Outcome:
    """What: pp_size above 1 switches the overlap scheduler off.
    Why: the pipeline's own loop schedules micro batches and does not support it.
    Example: pp_size=2 -> disable_overlap_schedule=true"""
    if not args.pp_size > 1:
        return None
    return Change(f"a pipeline of {args.pp_size} stages", disable_overlap_schedule=True)
