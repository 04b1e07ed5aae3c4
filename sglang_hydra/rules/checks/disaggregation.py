"""Checks the settings that prefill and decode servers must share."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.findings import Remedy
from sglang_hydra.text.json_types import Json

IN_CI = "SGLANG_IS_IN_CI"


@rule("DIS004", (821, 826))
def decode_replicas_are_served_in_turn(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a decode server with dp_size above 1 is refused without prefill_round_robin_balance.
    Why: SGLang asserts it, and asks for load_balance_method=round_robin on the prefill servers. Inferred: both sides
        must send a request to the same rank, which they find out by counting. SGLang's own test runs (SGLANG_IS_IN_CI)
        are let through.
    Example: dp_size=2 disaggregation_mode=decode -> refused"""
    if args.disaggregation_mode != "decode" or not args.dp_size > 1 or args.prefill_round_robin_balance:
        return None
    if facts.env.get(IN_CI, "false").lower() in ("true", "1"):
        return None
    return Refusal(
        f"a decode server with dp_size={args.dp_size} needs prefill_round_robin_balance=true",
        "prefill_round_robin_balance",
        "dp_size",
        offers=Remedy.typed(
            "prefill_round_robin_balance=true", ", and load_balance_method=round_robin on the prefill servers"
        ),
    )


@rule("DIS008", (2382, 2388))
def one_tp_divides_the_other(args: ServerArgs, facts: Facts) -> Outcome:
    """What: on a prefill server, tp_size and disaggregation_decode_tp must divide one another.
    Why: SGLang says that no other sizes are supported. Inferred: the KV cache is split anew on its way, and only whole
        shares can be merged or cut.
    Example: tp_size=4 disaggregation_mode=prefill disaggregation_decode_tp=6 -> refused"""
    if args.disaggregation_mode != "prefill":
        return None
    prefill: Json = args.tp_size
    decode: Json = args.disaggregation_decode_tp
    smaller, larger = min(decode, prefill), max(decode, prefill)
    if smaller != 0 and larger % smaller == 0:
        return None
    return Refusal(
        f"tp_size={prefill} and disaggregation_decode_tp={decode}: one must be a multiple of the other",
        "disaggregation_decode_tp",
        "tp_size",
        offers=(f"disaggregation_decode_tp={prefill}", "disaggregation_decode_tp=1"),
    )
