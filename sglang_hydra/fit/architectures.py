"""What the model classes of SGLang 0.5.2 do that no field of a config says (srt/models/*.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ALWAYS, NEVER, CONFIG = "always", "never", "config"


class Traits(NamedTuple):
    """One class of models.

    ``tied``: whether lm_head is the embedding (ALWAYS, NEVER, or as the config says, with ``tied_default`` where it
    says nothing). ``gated``: the MLP has a gate beside its up projection. ``norms``: norms of the hidden size in each
    layer. ``shares_attention``: the class knows DP attention. ``embedding_repeated``: every GPU holds the whole
    embedding. ``head``: False for reward and classification models. ``biased_experts``: experts have biases, kept in
    float32. ``windows``: layers may have a KV pool of their own for their window (the class has
    get_attention_sliding_window_size, or is the one that hybrid_kvcache_ratio is for). ``head_on_every_stage``: each
    pipeline stage makes an lm_head, though only the last one's is used.
    """

    tied: str = CONFIG
    tied_default: bool = False
    gated: bool = True
    norms: int = 2
    shares_attention: bool = False
    embedding_repeated: bool = False
    head: bool = True
    biased_experts: bool = False
    windows: bool = False
    head_on_every_stage: bool = True


_DENSE = Traits()
_OWN_HEAD = Traits(tied=NEVER)
_SHARED_DP = Traits(shares_attention=True)
_MOE_DP = Traits(tied=NEVER, shares_attention=True)
_TIED = Traits(tied=ALWAYS, tied_default=True)
_OLD = Traits(tied=ALWAYS, tied_default=True, gated=False)
_NO_HEAD = Traits(head=False)
_GEMMA_3 = Traits(tied_default=True, norms=4, embedding_repeated=True, windows=True)

KNOWN: Mapping[str, Traits] = {
    "ArceeForCausalLM": Traits(gated=False),
    "BaichuanForCausalLM": _DENSE,
    "BailingMoeForCausalLM": _DENSE,
    "ChatGLMModel": _OWN_HEAD,
    "CohereForCausalLM": Traits(tied=ALWAYS, norms=1),
    "Cohere2ForCausalLM": Traits(tied=ALWAYS, norms=1),
    "DbrxForCausalLM": _OWN_HEAD,
    "DeciLMForCausalLM": _DENSE,
    "DeepseekForCausalLM": _OWN_HEAD,
    "DeepseekV2ForCausalLM": _MOE_DP,
    "DeepseekV3ForCausalLM": _MOE_DP,
    "DeepseekVL2ForCausalLM": _OWN_HEAD,
    "Ernie4_5_ForCausalLM": Traits(tied_default=True),
    "Ernie4_5_MoeForCausalLM": Traits(tied_default=True),
    "ExaoneForCausalLM": _DENSE,
    "GPT2LMHeadModel": _OLD,
    "GPTBigCodeForCausalLM": _OLD,
    "GemmaForCausalLM": _TIED,
    "Gemma2ForCausalLM": Traits(tied=ALWAYS, norms=4, windows=True),
    "Gemma2ForSequenceClassification": Traits(tied=ALWAYS, norms=4, head=False),
    "Gemma3ForCausalLM": _GEMMA_3,
    "Gemma3ForConditionalGeneration": _GEMMA_3,
    "Glm4ForCausalLM": Traits(norms=4),
    "Glm4MoeForCausalLM": _MOE_DP,
    "Glm4vForConditionalGeneration": Traits(norms=4, shares_attention=True),
    "Glm4vMoeForConditionalGeneration": _MOE_DP,
    "GptOssForCausalLM": Traits(tied=NEVER, shares_attention=True, biased_experts=True, windows=True),
    "GraniteForCausalLM": _DENSE,
    "GraniteMoeForCausalLM": _DENSE,
    "Grok1ForCausalLM": Traits(tied=NEVER, norms=4),
    "Grok1ModelForCausalLM": Traits(tied=NEVER, norms=4),
    "HunYuanDenseV1ForCausalLM": _DENSE,
    "HunYuanMoEV1ForCausalLM": _DENSE,
    "InternLM2ForCausalLM": _OWN_HEAD,
    "InternLM2ForRewardModel": _NO_HEAD,
    "InternLM3ForCausalLM": _DENSE,
    "InternS1ForConditionalGeneration": _DENSE,
    "InternVLChatModel": _DENSE,
    "KimiVLForConditionalGeneration": _MOE_DP,
    "LlamaForCausalLM": _DENSE,
    "LlamaForCausalLMEagle": _DENSE,
    "LlamaForCausalLMEagle3": _DENSE,
    "LlamaForClassification": _NO_HEAD,
    "LlamaForSequenceClassification": _NO_HEAD,
    "LlamaForSequenceClassificationWithNormal_Weights": _NO_HEAD,
    "LlamaEmbeddingModel": _NO_HEAD,
    "Llama4ForCausalLM": _SHARED_DP,
    "Llama4ForConditionalGeneration": Traits(shares_attention=True, windows=True),
    "LlavaForConditionalGeneration": _DENSE,
    "LlavaLlamaForCausalLM": _DENSE,
    "LlavaMistralForCausalLM": _DENSE,
    "LlavaQwenForCausalLM": _DENSE,
    "LongcatFlashForCausalLM": _MOE_DP,
    "MiMoForCausalLM": _DENSE,
    "MiniCPMForCausalLM": Traits(tied_default=True),
    "MiniCPM3ForCausalLM": Traits(tied_default=True),
    "MiniCPMO": _DENSE,
    "MiniCPMV": _DENSE,
    "MistralForCausalLM": _DENSE,
    "MistralModel": _NO_HEAD,
    "Mistral3ForConditionalGeneration": _DENSE,
    "MixtralForCausalLM": _OWN_HEAD,
    "MllamaForConditionalGeneration": _OWN_HEAD,
    "MultiModalityCausalLM": _DENSE,
    "OPTForCausalLM": _OLD,
    "OlmoForCausalLM": _DENSE,
    "Olmo2ForCausalLM": _DENSE,
    "OlmoeForCausalLM": _OWN_HEAD,
    "PersimmonForCausalLM": Traits(tied=NEVER, gated=False),
    "PhiForCausalLM": Traits(tied=NEVER, gated=False),
    "Phi3ForCausalLM": _DENSE,
    "Phi3SmallForCausalLM": Traits(tied_default=True),
    "Phi4MMForCausalLM": Traits(tied_default=True),
    "PhiMoEForCausalLM": Traits(tied=NEVER, shares_attention=True),
    "QWenLMHeadModel": _OWN_HEAD,
    "QuantMixtralForCausalLM": _OWN_HEAD,
    "Qwen2AudioForConditionalGeneration": _DENSE,
    "Qwen2ForCausalLM": Traits(head_on_every_stage=False),
    "Qwen2ForCausalLMEagle": _DENSE,
    "Qwen2ForRewardModel": _NO_HEAD,
    "Qwen2ForSequenceClassification": _NO_HEAD,
    "Qwen2MoeForCausalLM": _MOE_DP,
    "Qwen2VLForConditionalGeneration": _DENSE,
    "Qwen2_5_VLForConditionalGeneration": _DENSE,
    "Qwen3ForCausalLM": Traits(shares_attention=True, head_on_every_stage=False),
    "Qwen3ForSequenceClassification": Traits(head=False, shares_attention=True),
    "Qwen3MoeForCausalLM": _MOE_DP,
    "Qwen3NextForCausalLM": _MOE_DP,
    "StableLmForCausalLM": _OWN_HEAD,
    "Step3VLForConditionalGeneration": _MOE_DP,
    "VILAForConditionalGeneration": _DENSE,
    "XverseForCausalLM": _OWN_HEAD,
    "XverseMoeForCausalLM": _OWN_HEAD,
}
"""By architecture, as config.json spells it."""

EMBEDDING_MODELS = (
    "BertForSequenceClassification",
    "BertModel",
    "CLIPModel",
    "Contriever",
    "XLMRobertaForSequenceClassification",
    "XLMRobertaModel",
)
"""Encoders, which have no decoder to size here."""

_LATER = Traits(shares_attention=True)


def traits_of(architecture: str) -> tuple[Traits, bool]:
    """The traits of a class, and whether they are assumed: SGLang 0.5.2 has no class of that name then, a later
    release or its Transformers backend serves it, and its tensors are those of the usual decoder."""
    known = KNOWN.get(architecture)
    return (known, False) if known is not None else (_LATER, True)
