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
_ENCODER = Traits(tied=ALWAYS, gated=False, head=False, norms=4)  # each of its two norms has a bias
_GEMMA_3 = Traits(tied_default=True, norms=4, embedding_repeated=True, windows=True)

KNOWN: Mapping[str, Traits] = {
    "ArceeForCausalLM": Traits(gated=False),
    "BaichuanForCausalLM": _DENSE,
    "BertForSequenceClassification": _ENCODER,
    "BertModel": _ENCODER,
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
    "Gemma3nForCausalLM": _GEMMA_3,
    "Gemma3nForConditionalGeneration": _GEMMA_3,
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
    "LlavaVidForCausalLM": _DENSE,
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
    "XLMRobertaForSequenceClassification": _ENCODER,
    "XLMRobertaModel": _ENCODER,
    "XverseForCausalLM": _OWN_HEAD,
    "XverseMoeForCausalLM": _OWN_HEAD,
    "YiVLForCausalLM": _DENSE,
}
"""By architecture, as config.json spells it."""

_DRAFTS = (
    *("DeepseekV3ForCausalLMNextN", "Ernie4_5_MoeForCausalLMMTP", "Glm4MoeForCausalLMNextN", "MiMoMTP"),
    *("LongcatFlashForCausalLMNextN", "PixtralVisionModel", "Qwen3NextForCausalLMMTP", "TorchNativeLlamaForCausalLM"),
    *("TorchNativePhi3ForCausalLM", "TransformersForCausalLM"),
)
"""Classes of 0.5.2 that no server is asked for by name: drafts, and its own stand-ins."""

_LATER = Traits(shares_attention=True)
_LATER_WINDOWS = Traits(shares_attention=True, windows=True)
_LATER_NORMS = Traits(norms=4, tied_default=True, embedding_repeated=True, windows=True)

LATER: Mapping[str, Traits] = {
    "AfmoeForCausalLM": Traits(norms=4, shares_attention=True),
    "ApertusForCausalLM": Traits(gated=False),
    "BailingMoeV2ForCausalLM": _LATER,
    "BambaForCausalLM": _LATER,
    "DeepseekV32ForCausalLM": _MOE_DP,
    "Exaone4ForCausalLM": _DENSE,
    "ExaoneMoEForCausalLM": _LATER,
    "ExaoneMoeForCausalLM": _LATER,
    "FalconH1ForCausalLM": _DENSE,
    "Gemma4ForCausalLM": _LATER_NORMS,
    "Gemma4ForConditionalGeneration": _LATER_NORMS,
    "Glm4MoeLiteForCausalLM": _MOE_DP,
    "GlmForCausalLM": _DENSE,
    "GlmMoeDsaForCausalLM": _MOE_DP,
    "GraniteMoeHybridForCausalLM": _LATER,
    "GraniteMoeSharedForCausalLM": _LATER,
    "JambaForCausalLM": _LATER,
    "KimiK25ForConditionalGeneration": _MOE_DP,
    "KimiLinearForCausalLM": _MOE_DP,
    "Lfm2ForCausalLM": _TIED,
    "Lfm2MoeForCausalLM": _TIED,
    "MiMoV2FlashForCausalLM": _LATER_WINDOWS,
    "MiniMaxM2ForCausalLM": _LATER,
    "Ministral3ForCausalLM": _DENSE,
    "MistralLarge3ForCausalLM": _MOE_DP,
    "NemotronForCausalLM": Traits(gated=False),
    "NemotronHForCausalLM": Traits(gated=False, norms=1, shares_attention=True),
    "Olmo3ForCausalLM": _LATER_WINDOWS,
    "Qwen3Model": Traits(head=False, shares_attention=True),
    "Qwen3VLForConditionalGeneration": _LATER,
    "Qwen3VLMoeForConditionalGeneration": _LATER,
    "Qwen3_5ForCausalLM": _LATER,
    "Qwen3_5ForConditionalGeneration": _LATER,
    "Qwen3_5MoeForCausalLM": _LATER,
    "Qwen3_5MoeForConditionalGeneration": _LATER,
    "SeedOssForCausalLM": _DENSE,
    "SmolLM3ForCausalLM": Traits(tied_default=True),
    "SolarForCausalLM": _DENSE,
    "Starcoder2ForCausalLM": Traits(tied_default=True, gated=False),
    "Step3p5ForCausalLM": _LATER_WINDOWS,
}
"""Classes of later releases, and of transformers, that have been counted like those of 0.5.2."""

ENCODERS = ("CLIPModel", "Contriever")
"""Models without a decoder to size here."""


def traits_of(architecture: str) -> tuple[Traits, bool | None]:
    """The traits of a class, and whether SGLang 0.5.2 has it. None instead of the latter: nobody knows the class here,
    and its tensors are taken to be those of the usual decoder."""
    if architecture in KNOWN:
        return KNOWN[architecture], True
    if architecture in LATER:
        return LATER[architecture], False
    return _LATER, None


def is_served(architecture: str) -> bool:
    """Whether SGLang 0.5.2 has a class of this name (its models/*.py, EntryClass)."""
    return architecture in KNOWN or architecture in ENCODERS or architecture in _DRAFTS


# utils.is_fa3_default_architecture; linear attention brings FlashAttention 3 with it (hybrid_linear_attn).
FA3_BY_DEFAULT = (
    *("Qwen2ForCausalLM", "Llama4ForConditionalGeneration", "LlamaForCausalLM", "Gemma2ForCausalLM"),
    *("Gemma3ForConditionalGeneration", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Glm4MoeForCausalLM"),
    *("Glm4vMoeForConditionalGeneration", "Step3VLForConditionalGeneration", "Qwen3NextForCausalLM"),
)
