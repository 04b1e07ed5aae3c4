"""Checks the number of tokenizers."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule


@rule("TOK001", (2290, 2291), stage="check")
def someone_tokenizes(args: ServerArgs, facts: Facts) -> Outcome:
    """What: tokenizer_worker_num must be 1 or more.
    Why: Inferred: every request passes a tokenizer.
    Example: tokenizer_worker_num=0 -> refused"""
    if args.tokenizer_worker_num > 0:
        return None
    return Refusal(
        f"tokenizer_worker_num={args.tokenizer_worker_num}: at least 1 is needed",
        "tokenizer_worker_num",
        offers="tokenizer_worker_num=1",
    )
