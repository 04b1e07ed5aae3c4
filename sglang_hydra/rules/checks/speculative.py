"""Checks the draft settings against each other, the backends and data parallel attention."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.rules.memory import TRTLLM_MHA
from sglang_hydra.rules.rule import Facts, Notice, Outcome, Refusal, rule
from sglang_hydra.rules.speculative import DRAFTING, WITH_OWN_DRAFT
from sglang_hydra.text.findings import Remedy
from sglang_hydra.text.json_types import Json
from sglang_hydra.text.words import typed

_CHAIN = "speculative_num_steps=3 speculative_eagle_topk=1"
_ALL_THREE = Remedy.typed(
    "speculative_num_steps=null speculative_eagle_topk=null speculative_num_draft_tokens=null",
    when="lets SGLang choose",
)


@rule("SPE002", (724, 728))
def standalone_draft_without_dp_attention(args: ServerArgs, facts: Facts) -> Outcome:
    """What: speculative_algorithm=STANDALONE is refused with enable_dp_attention.
    Why: in this version a separate draft model does not support the ranks of data parallel attention.
    Example: tp_size=8 dp_size=8 enable_dp_attention=true speculative_algorithm=STANDALONE -> refused"""
    if args.speculative_algorithm != "STANDALONE" or args.enable_dp_attention is False:
        return None
    return Refusal(
        f"speculative_algorithm=STANDALONE does not run with enable_dp_attention={typed(args.enable_dp_attention)}",
        "enable_dp_attention",
        "speculative_algorithm",
        offers=("enable_dp_attention=false", "enable_dp_attention=false dp_size=1"),
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


@rule("SPE010", (765, 785))
def draft_shape_has_topk(args: ServerArgs, facts: Facts) -> Outcome:
    """What: speculative_num_steps is refused without speculative_eagle_topk.
    Why: SGLang chooses all three or none, and then compares the missing one with a number, which fails.
    Example: model=llama_3_1_8b speculative_algorithm=EAGLE speculative_num_steps=3 -> refused"""
    if args.speculative_algorithm not in DRAFTING or args.speculative_eagle_topk is not None:
        return None
    if args.speculative_num_steps is None:
        return None
    return Refusal(
        f"speculative_num_steps={args.speculative_num_steps} without speculative_eagle_topk",
        "speculative_eagle_topk",
        offers=("speculative_eagle_topk=1", _ALL_THREE),
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


@rule("SPE013", (784, 791))
def trees_need_pages_of_one(args: ServerArgs, facts: Facts) -> Outcome:
    """What: speculative_eagle_topk above 1 is refused with page_size above 1, unless attention_backend=flashinfer.
    Why: SGLang says that this is unstable and gives wrong results. Inferred: with larger pages the branches of a draft
        tree share pages.
    Example: model=llama_3_1_8b page_size=16 speculative_algorithm=EAGLE -> refused"""
    if args.speculative_algorithm not in DRAFTING or args.speculative_eagle_topk is None:
        return None
    topk = args.speculative_eagle_topk
    page_size: Json = args.page_size
    if not (topk > 1 and page_size > 1 and args.attention_backend != "flashinfer"):
        return None
    return Refusal(
        f"speculative_eagle_topk={topk} with page_size={page_size} runs on attention_backend=flashinfer only",
        "speculative_eagle_topk",
        "page_size",
        "attention_backend",
        offers=("page_size=1", _CHAIN, "attention_backend=flashinfer"),
    )


@rule("SPE014", (2277, 2281), stage="check")
def drafts_without_mixed_chunks(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_mixed_chunk is refused with any speculative_algorithm.
    Why: SPE005 has switched it off for those that SGLang knows; this catches every other name.
    Example: speculative_algorithm=LOOKAHEAD enable_mixed_chunk=true -> refused"""
    if args.speculative_algorithm is None or not args.enable_mixed_chunk:
        return None
    return Refusal(
        f"enable_mixed_chunk=true does not run with speculative_algorithm={args.speculative_algorithm}",
        "enable_mixed_chunk",
        "speculative_algorithm",
        offers="enable_mixed_chunk=false",
    )
