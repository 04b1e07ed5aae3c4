"""Rules for speculative decoding with a draft model."""

from __future__ import annotations

from typing import NamedTuple

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.rules.rule import Change, Facts, Outcome, Restated, rule

DRAFTING = ("EAGLE", "EAGLE3", "STANDALONE")
WITH_OWN_DRAFT = ("DeepseekV3ForCausalLM", "Glm4MoeForCausalLM")
MAX_RUNNING_REQUESTS = 48


class DraftShape(NamedTuple):
    """Draft steps, branches kept at each step, tokens verified at once."""

    steps: int
    topk: int
    draft_tokens: int


CHAIN, TREE = DraftShape(3, 1, 4), DraftShape(5, 4, 8)

# Every other architecture drafts a tree.
SHAPES = (
    (("DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM", "GptOssForCausalLM"), CHAIN),
    (("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"), TREE),
)


def shape_for(architecture: str) -> DraftShape:
    """Returns SGLang's draft shape for this architecture."""
    return next((shape for architectures, shape in SHAPES if architecture in architectures), TREE)


@rule("SPE001", (718, 721))
def nextn_is_eagle(args: ServerArgs, facts: Facts) -> Outcome:
    """What: speculative_algorithm=NEXTN becomes EAGLE.
    Why: a model's own next-token layers are run by the same code. Memory was reserved under the old name.
    Example: gpu=h200 model=deepseek_v3 speculative_algorithm=NEXTN -> speculative_algorithm=EAGLE"""
    if args.speculative_algorithm != "NEXTN":
        return None
    return Restated("NEXTN is run as EAGLE", speculative_algorithm="EAGLE")


@rule("SPE003", (729, 730))
def limit_requests_when_drafting(args: ServerArgs, facts: Facts) -> Outcome:
    """What: with a draft model max_running_requests, if unset, is 48.
    Why: Inferred: drafting pays off while the GPU has compute to spare, which is at small batches.
    Example: gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE3 -> max_running_requests=48"""
    if args.speculative_algorithm not in DRAFTING or args.max_running_requests is not None:
        return None
    return Change(f"{args.speculative_algorithm} drafts", max_running_requests=MAX_RUNNING_REQUESTS)


@rule("SPE004", (731, 735))
def no_overlap_when_drafting(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a draft model switches the overlap scheduler off.
    Why: Inferred: the next batch depends on how many draft tokens were accepted in this one.
    Example: gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE -> disable_overlap_schedule=true"""
    if args.speculative_algorithm not in DRAFTING:
        return None
    return Change(f"{args.speculative_algorithm} drafts", disable_overlap_schedule=True)


@rule("SPE005", (736, 741))
def no_mixed_chunks_when_drafting(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a draft model switches enable_mixed_chunk off.
    Why: Inferred: prefill chunks and verified drafts cannot share a batch.
    Example: gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE enable_mixed_chunk=true -> enable_mixed_chunk=false
    """
    if args.speculative_algorithm not in DRAFTING or not args.enable_mixed_chunk:
        return None
    return Change(f"{args.speculative_algorithm} drafts", enable_mixed_chunk=False)


@rule("SPE006", (743, 747))
def draft_with_own_layers(args: ServerArgs, facts: Facts) -> Outcome:
    """What: DeepSeek V3 and R1, and GLM-4.5, get speculative_draft_model_path=model_path, if unset.
    Why: their checkpoints bring the layers that predict further tokens.
    Example: gpu=h200 model=glm_4_5 speculative_algorithm=EAGLE -> speculative_draft_model_path=<model_path>"""
    if args.speculative_algorithm not in DRAFTING or args.speculative_draft_model_path is not None:
        return None
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or view.architecture not in WITH_OWN_DRAFT:
        return None
    return Change(f"{view.architecture} brings its own draft layers", speculative_draft_model_path=args.model_path)


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
        shape, reason = CHAIN, "STANDALONE"
    else:
        view = view_of(facts.model, args.json_model_override_args)
        if view is None:
            return None
        shape, reason = shape_for(view.architecture), f"{view.architecture}"
    return Change(
        f"{reason}: {shape.steps} steps, top {shape.topk}, {shape.draft_tokens} tokens",
        speculative_num_steps=shape.steps,
        speculative_eagle_topk=shape.topk,
        speculative_num_draft_tokens=shape.draft_tokens,
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
