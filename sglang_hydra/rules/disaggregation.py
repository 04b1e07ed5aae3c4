"""Rules for servers that only prefill or only decode."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule


@rule("DIS003", (818, 819))
def no_radix_cache_when_decoding(args: ServerArgs, facts: Facts) -> Outcome:
    """What: disaggregation_mode=decode switches the radix cache off.
    Why: SGLang only says that it forces the chunk cache there. Inferred: prefixes are shared on the prefill servers; a
        decode server gets each request's KV cache whole.
    Example: disaggregation_mode=decode -> disable_radix_cache=true"""
    if args.disaggregation_mode != "decode":
        return None
    return Change("a decode server keeps no prefixes", disable_radix_cache=True)


@rule("DIS005", (827, 829))
def assume_tp_of_decode_servers(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a prefill server takes its own tp_size for disaggregation_decode_tp, if unset.
    Why: Inferred: it must know how the receivers split the KV cache.
    Example: tp_size=4 disaggregation_mode=prefill -> disaggregation_decode_tp=4"""
    if args.disaggregation_mode != "prefill" or args.disaggregation_decode_tp is not None:
        return None
    return Change(f"the same as tp_size = {args.tp_size}", disaggregation_decode_tp=args.tp_size)


@rule("DIS006", (830, 831))
def assume_dp_of_decode_servers(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a prefill server takes its own dp_size for disaggregation_decode_dp, if unset.
    Why: Inferred: it must know how many ranks receive.
    Example: dp_size=2 disaggregation_mode=prefill -> disaggregation_decode_dp=2"""
    if args.disaggregation_mode != "prefill" or args.disaggregation_decode_dp is not None:
        return None
    return Change(f"the same as dp_size = {args.dp_size}", disaggregation_decode_dp=args.dp_size)


@rule("DIS007", (833, 833))
def pipeline_of_prefill_servers(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a prefill server sets disaggregation_prefill_pp to its pp_size, also over a given one.
    Why: it is itself the prefill pipeline that the decode servers are given.
    Example: pp_size=2 disaggregation_mode=prefill -> disaggregation_prefill_pp=2"""
    if args.disaggregation_mode != "prefill":
        return None
    return Change(f"its own pp_size = {args.pp_size}", disaggregation_prefill_pp=args.pp_size)


@rule("DIS009", (836, 837))
def no_graphs_when_prefilling(args: ServerArgs, facts: Facts) -> Outcome:
    """What: disaggregation_mode=prefill switches CUDA graphs off.
    Why: SGLang only says that it is disabled there. Inferred: graphs are captured for decode steps, and such a server
        makes none.
    Example: disaggregation_mode=prefill -> disable_cuda_graph=true"""
    if args.disaggregation_mode != "prefill":
        return None
    return Change("a prefill server makes no decode steps", disable_cuda_graph=True)
