"""Counts the GPUs that share each kind of tensor, and divides the layers among the pipeline stages."""

from __future__ import annotations

from typing import NamedTuple

from sglang_hydra.arguments.layout import Layout

_VOCABULARY_PADDING = 64  # rows; SGLang 0.5.2, layers/vocab_parallel_embedding.py
# Classes with the experts of models/deepseek_v2.py, glm4_moe.py, gpt_oss.py or qwen3_moe.py in 0.5.2: the only
# files that allocate slots for ep_num_redundant_experts.
REPEATS_EXPERTS = (
    *("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekVL2ForCausalLM", "KimiVLForConditionalGeneration"),
    *("Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration", "GptOssForCausalLM", "Qwen3MoeForCausalLM"),
    *("InternS1ForConditionalGeneration", "InternVLChatModel"),
)
_GLM = ("Glm4Moe", "Glm4vMoe")


class Ranks(NamedTuple):
    """The number of GPUs that share each kind of a model's tensors under a ``Layout``.

    ``attention`` divides attention: over all GPUs of a stage, or of a group under DP attention. Experts are divided
    over ``experts`` GPUs, and each expert over ``expert_slices`` more (FusedMoE: moe_ep, moe_tp). ``dense`` divides
    dense MLPs (1: every GPU holds them whole), ``shared`` the shared experts (DeepEP repeats them, and GLM under any
    expert parallelism), ``embedding`` and ``head`` the vocabulary. ``redundant`` experts of each layer have a second
    copy. ``cached`` divides the KV heads: the ``decode_contexts`` ranks of decode context parallelism hold the same
    heads but other tokens. ``groups`` of a copy serve requests of their own."""

    tp: int
    stages: int
    attention: int
    groups: int
    copies: int
    experts: int
    expert_slices: int
    dense: int
    shared: int
    embedding: int
    head: int
    redundant: int
    cached: int
    decode_contexts: int = 1

    @property
    def replicas(self) -> int:
        """Returns the number of parts of the server with requests of their own."""
        return self.copies * self.groups

    @property
    def gpus(self) -> int:
        """Returns the number of GPUs that hold one copy of the model."""
        return self.tp * self.stages

    @property
    def all_gpus(self) -> int:
        """Returns the number of GPUs of the whole server: plain data parallelism multiplies them, DP attention shares
        them."""
        return self.gpus * self.copies


def ranks_of(layout: Layout, *, shares_attention: bool, architecture: str = "", later: bool = False) -> Ranks:
    """Returns the ranks of ``layout`` for a model class with DP attention (``shares_attention``) or without.

    ``architecture`` decides the placement of experts. ``later``: a release after 0.5.2, where nearly all classes have
    slots for redundant experts."""
    tp, shared_out = layout.tp, layout.attention_groups > 1 and shares_attention
    attention = layout.attention if shared_out else max(1, tp // layout.attention_contexts)
    repeats = later or architecture in REPEATS_EXPERTS
    return Ranks(
        tp=tp,
        stages=layout.stages,
        attention=attention,
        groups=layout.attention_groups,
        copies=layout.copies,
        experts=layout.experts,
        expert_slices=layout.expert_slices,
        dense=min(tp, layout.dense or tp),
        shared=1 if layout.all_to_all or (layout.experts > 1 and architecture.startswith(_GLM)) else tp,
        embedding=1 if shared_out else tp,
        head=attention if layout.divided_head else tp,
        redundant=layout.redundant if repeats else 0,
        cached=max(1, attention // layout.decode_contexts),
        decode_contexts=layout.decode_contexts,
    )


def stage_layers(layers: int, stages: int) -> list[range]:
    """Returns the layers of each pipeline stage: equal shares, the last takes the rest
    (distributed/utils.get_pp_indices). More stages than layers are refused elsewhere."""
    stages = min(stages, layers)
    share = layers // stages
    return [range(stage * share, layers if stage == stages - 1 else (stage + 1) * share) for stage in range(stages)]


def padded_vocabulary(rows: int) -> int:
    """Returns the rows of an embedding or lm_head over all GPUs, padded to a multiple of 64."""
    return -(-rows // _VOCABULARY_PADDING) * _VOCABULARY_PADDING


def share(size: int, gpus: int) -> int:
    """Returns one GPU's part of ``size``, rounded up: an uneven split is refused elsewhere."""
    return -(-size // gpus)


def kv_share(heads: int, gpus: int) -> int:
    """Returns the KV heads on each GPU: at least one, repeated where there are fewer heads than GPUs."""
    return max(1, heads // gpus)
