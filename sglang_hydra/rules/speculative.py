"""Rules for speculative decoding with a draft model."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule

DRAFTING = ("EAGLE", "EAGLE3", "STANDALONE")
# Draft steps, branches kept at each step, tokens verified at once. Every other architecture drafts a tree.
_CHAIN, _TREE = (3, 1, 4), (5, 4, 8)
_WITH_CHAINS = ("DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM", "GptOssForCausalLM")


@rule("SPE009", (754, 763))
def choose_draft_shape(args: ServerArgs, facts: Facts) -> Outcome:
    """What: without speculative_num_steps, steps, top-k and draft tokens are 3, 1, 4 for STANDALONE, DeepSeek V2 and V3
        and gpt-oss, and 5, 4, 8 for other models.
    Why: Inferred: a chain suits drafts that are often right; a tree of four branches hedges.
    Example: gpu=h200 model=deepseek_v3 speculative_algorithm=EAGLE -> speculative_num_steps=3 speculative_eagle_topk=1
    """
    if args.speculative_algorithm not in DRAFTING or args.speculative_num_steps is not None:
        return None
    if args.speculative_eagle_topk is not None or args.speculative_num_draft_tokens is not None:
        return None
    if args.speculative_algorithm == "STANDALONE":
        (steps, topk, tokens), reason = _CHAIN, "STANDALONE"
    else:
        view = view_of(facts.model, args.json_model_override_args)
        if view is None:
            return None
        (steps, topk, tokens), reason = _CHAIN if view.architecture in _WITH_CHAINS else _TREE, view.architecture
    return Change(
        f"{reason}: {steps} steps, top {topk}, {tokens} tokens",
        speculative_num_steps=steps,
        speculative_eagle_topk=topk,
        speculative_num_draft_tokens=tokens,
    )


@rule("SPE012", (775, 782))
def verify_a_whole_chain(args: ServerArgs, facts: Facts) -> Outcome:
    """What: speculative_eagle_topk=1 makes speculative_num_draft_tokens one more than speculative_num_steps.
    Why: a chain of n steps has n drafted tokens and the one before them to verify, no more and no fewer.
    Example: gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE speculative_num_steps=2 speculative_eagle_topk=1
        speculative_num_draft_tokens=8 -> speculative_num_draft_tokens=3"""
    if args.speculative_algorithm not in DRAFTING or args.speculative_eagle_topk != 1:
        return None
    steps = args.speculative_num_steps
    if steps is None:
        return None
    return Change(f"a chain of {steps} steps", speculative_num_draft_tokens=steps + 1)
