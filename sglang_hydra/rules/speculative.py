"""Rules for speculative decoding with a draft model."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule

_DRAFTING = ("EAGLE", "EAGLE3", "STANDALONE")


@rule("SPE012", (775, 782))
def verify_a_whole_chain(args: ServerArgs, facts: Facts) -> Outcome:
    """What: speculative_eagle_topk=1 makes speculative_num_draft_tokens one more than speculative_num_steps.
    Why: a chain of n steps has n drafted tokens and the one before them to verify, no more and no fewer.
    Example: gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE speculative_num_steps=2 speculative_eagle_topk=1
        speculative_num_draft_tokens=8 -> speculative_num_draft_tokens=3"""
    if args.speculative_algorithm not in _DRAFTING or args.speculative_eagle_topk != 1:
        return None
    steps = args.speculative_num_steps
    if steps is None:
        return None
    return Change(f"a chain of {steps} steps", speculative_num_draft_tokens=steps + 1)
