"""How many GPUs share each kind of tensor, and which layers each pipeline stage holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_VOCABULARY_PADDING = 64  # rows; SGLang 0.5.2, layers/vocab_parallel_embedding.py
# Classes whose experts are those of models/deepseek_v2.py, glm4_moe.py, gpt_oss.py or qwen3_moe.py in 0.5.2: the only
# files that make room for ep_num_redundant_experts.
REPEATS_EXPERTS = (
    *("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekVL2ForCausalLM", "KimiVLForConditionalGeneration"),
    *("Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration", "GptOssForCausalLM", "Qwen3MoeForCausalLM"),
    *("InternS1ForConditionalGeneration", "InternVLChatModel"),
)
# Ways to send tokens to experts that divide these over all GPUs (0.5.23 arg_groups: moe_a2a_backend).
_ALL_TO_ALL = ("deepep", "mooncake", "nixl", "mori", "flashinfer", "megamoe", "ascend_fuseep")
_GLM = ("Glm4Moe", "Glm4vMoe")


class Ranks(NamedTuple):
    """The sizes of the groups over which SGLang 0.5.2 shards: numbers of GPUs, and of data-parallel replicas.

    ``attention`` is tp_size, or tp_size / dp_size under DP attention (layers/dp_attention.py). Experts are
    divided over ``experts`` GPUs, and each expert over ``expert_slices`` more (FusedMoE: moe_ep, moe_tp).
    ``dense`` shards dense MLPs (moe_dense_tp_size=1 repeats them on every GPU), ``shared`` the shared experts (DeepEP
    repeats them, GLM any ep_size), ``embedding`` and ``head`` the vocabulary. ``redundant`` experts of each layer are
    held once more. ``cached`` shards the KV heads: decode context parallel ranks hold the same ones.
    """

    tp: int
    stages: int
    attention: int
    replicas: int
    copies: int
    experts: int
    expert_slices: int
    dense: int
    shared: int
    embedding: int
    head: int
    redundant: int
    cached: int

    @property
    def gpus(self) -> int:
        """GPUs that hold one copy of the model."""
        return self.tp * self.stages

    @property
    def all_gpus(self) -> int:
        """GPUs of the whole server: plain data parallelism multiplies them, DP attention shares them."""
        return self.gpus * self.copies


def ranks_of(
    values: Mapping[str, Any], *, shares_attention: bool, architecture: str = "", later: bool = False
) -> Ranks:
    """The groups under ``values``, for a model whose class knows DP attention (``shares_attention``) or not, and places
    its experts as ``architecture`` does; ``later``: in a release after 0.5.2, where nearly all classes make room for
    redundant experts. Its context parallel sizes are those of 0.5.23 layers/dp_attention.py:445-460.
    """
    tp = max(1, values.get("tp_size") or 1)
    dp = max(1, values.get("dp_size") or 1)
    dp_attention = bool(values.get("enable_dp_attention")) and dp > 1
    shared_out = dp_attention and shares_attention
    spread = max(1, values.get("attn_cp_size") or 1)
    attention = max(1, tp // dp // spread) if shared_out else max(1, tp // spread)
    deepep = str(values.get("moe_a2a_backend") or "none") in _ALL_TO_ALL
    sharing = max(1, tp // max(1, values.get("moe_dp_size") or 1))
    experts = sharing if deepep else min(sharing, max(1, values.get("ep_size") or 1))
    dense = values.get("moe_dense_tp_size") or tp
    repeats = later or architecture in REPEATS_EXPERTS
    return Ranks(
        tp=tp,
        stages=max(1, values.get("pp_size") or 1),
        attention=attention,
        replicas=dp,
        copies=1 if dp_attention else dp,
        experts=experts,
        expert_slices=max(1, sharing // experts),
        dense=min(tp, dense),
        shared=1 if deepep or (experts > 1 and architecture.startswith(_GLM)) else tp,
        embedding=1 if shared_out else tp,
        head=attention if values.get("enable_dp_lm_head") else tp,
        redundant=max(0, values.get("ep_num_redundant_experts") or 0) if repeats else 0,
        cached=max(1, attention // max(1, values.get("dcp_size") or 1)),
    )


def stage_layers(layers: int, stages: int) -> list[range]:
    """The layers of each pipeline stage: equal shares, the last takes the rest (distributed/utils.get_pp_indices). More
    stages than layers are refused elsewhere."""
    stages = min(stages, layers)
    share = layers // stages
    return [range(stage * share, layers if stage == stages - 1 else (stage + 1) * share) for stage in range(stages)]


def padded_vocabulary(rows: int) -> int:
    """Rows of an embedding or of lm_head, all GPUs together."""
    return -(-rows // _VOCABULARY_PADDING) * _VOCABULARY_PADDING


def share(size: int, gpus: int) -> int:
    """One GPU's part of ``size``, rounded up: an uneven split is refused elsewhere."""
    return -(-size // gpus)


def kv_share(heads: int, gpus: int) -> int:
    """KV heads on each GPU: at least one, repeated where there are fewer heads than GPUs."""
    return max(1, heads // gpus)
