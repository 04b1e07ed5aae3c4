"""Checks the draft settings against each other, the backends and data parallel attention."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.rules.memory import TRTLLM_MHA
from sglang_hydra.rules.rule import Facts, Notice, Outcome, Refusal, rule
from sglang_hydra.rules.speculative import DRAFTING, WITH_OWN_DRAFT
from sglang_hydra.text.findings import Remedy

_CHAIN = "speculative_num_steps=3 speculative_eagle_topk=1"
_ALL_THREE = Remedy.typed(
    "speculative_num_steps=null speculative_eagle_topk=null speculative_num_draft_tokens=null",
    when="lets SGLang choose",
)


@rule("SPE007", (748, 751))
def own_layers_beat_another_draft(args: ServerArgs, facts: Facts) -> Outcome:
    """What: warns of a speculative_draft_model_path for DeepSeek V3 and R1 or GLM-4.5.
    Why: their checkpoints bring draft layers, which another draft replaces.
    Example: model=deepseek_v3 speculative_algorithm=EAGLE speculative_draft_model_path=org/draft -> warned"""
    if args.speculative_algorithm not in DRAFTING or not facts.was_given("speculative_draft_model_path"):
        return None
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or view.architecture not in WITH_OWN_DRAFT:
        return None
    return Notice(
        f"{view.architecture} brings its own draft layers; {args.speculative_draft_model_path} is used instead",
        "speculative_draft_model_path",
        offers="speculative_draft_model_path=null",
    )


@rule("SPE008", (754, 758))
def draft_shape_starts_with_steps(args: ServerArgs, facts: Facts) -> Outcome:
    """What: speculative_eagle_topk and speculative_num_draft_tokens are refused without speculative_num_steps.
    Why: SGLang chooses all three or none.
    Example: model=llama_3_1_8b speculative_algorithm=EAGLE speculative_eagle_topk=4 -> refused"""
    if args.speculative_algorithm not in DRAFTING or args.speculative_num_steps is not None:
        return None
    topk, tokens = args.speculative_eagle_topk, args.speculative_num_draft_tokens
    if topk is None and tokens is None:
        return None
    return Refusal(
        f"speculative_eagle_topk={topk} and speculative_num_draft_tokens={tokens} without speculative_num_steps",
        "speculative_num_steps",
        offers=("speculative_num_steps=3 speculative_eagle_topk=1", _ALL_THREE),
    )


@rule("SPE011", (765, 773))
def trtllm_mha_verifies_chains(args: ServerArgs, facts: Facts) -> Outcome:
    """What: trtllm_mha as any of the three attention backends is refused with a speculative_eagle_topk above 1.
    Why: its kernels verify a chain of draft tokens and no tree.
    Example: gpu=b200 model=llama_3_1_8b attention_backend=trtllm_mha speculative_algorithm=EAGLE -> refused"""
    if args.speculative_algorithm not in DRAFTING or not TRTLLM_MHA.is_used(args):
        return None
    topk = args.speculative_eagle_topk
    if topk is None or not topk > 1:
        return None
    return Refusal(
        f"trtllm_mha verifies chains only: speculative_eagle_topk must be 1; got {topk}",
        "speculative_eagle_topk",
        "attention_backend",
        offers=_CHAIN,
    )
