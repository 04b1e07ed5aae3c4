"""Rows of the rules' tables: one rule, what was given, and what it must answer.

The arguments handed to a rule are sealed, so every row also proves that the rule does not write to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sglang_hydra import GpuFacts, ModelFacts
from sglang_hydra.arguments.fields import fresh_defaults, sealed
from sglang_hydra.rules.rule import Change, Facts, Notice, Outcome, Refusal, Rule

SEED = 42
MODEL_PATH = "org/name"


def _nvidia(name: str, memory_mib: float, capability: tuple[int, int]) -> GpuFacts:
    return GpuFacts(name, "nvidia", "cuda", memory_mib, capability, count=8, flashinfer=True, triton_kernels=True)


GPUS: Mapping[str, GpuFacts] = {
    "t4": _nvidia("t4", 15360, (7, 5)),
    "rtx_4090": _nvidia("rtx_4090", 24564, (8, 9)),
    "rtx_5090": _nvidia("rtx_5090", 32607, (12, 0)),
    "a100": _nvidia("a100", 81920, (8, 0)),
    "h20": _nvidia("h20", 97871, (9, 0)),
    "h100": _nvidia("h100", 81559, (9, 0)),
    "h200": _nvidia("h200", 143771, (9, 0)),
    "b200": _nvidia("b200", 183359, (10, 0)),
    "unmeasured": GpuFacts("unmeasured", "nvidia", "cuda", None, (9, 0)),
    "mi300x": GpuFacts("mi300x", "amd", "cuda", 196592, (9, 4), count=8),
    "mi300x_with_flashinfer": GpuFacts("mi300x", "amd", "cuda", 196592, (9, 4), count=8, flashinfer=True),
    "gaudi3": GpuFacts("gaudi3", "habana", "hpu", 131072, count=8),
    "ascend_910b": GpuFacts("ascend_910b", "huawei", "npu", 65536, count=8),
    "xpu": GpuFacts("xpu", "intel", "xpu"),
    "cpu": GpuFacts("cpu", "none", "cpu", torch_cuda=False),
    "cpu_of_an_excerpt": GpuFacts("cpu", "none", "cpu"),
    "none": GpuFacts("none", "none", None),
}

MODELS: Mapping[str, Mapping[str, Any] | None] = {
    "unknown": None,
    "nameless": {"model_type": "llama"},
    "llama_3_1_8b": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "mixtral_8x7b": {"architectures": ["MixtralForCausalLM"]},
    "deepseek_v3": {"architectures": ["DeepseekV3ForCausalLM"], "quantization_config": {"quant_method": "fp8"}},
    "glm_4_5": {"architectures": ["Glm4MoeForCausalLM"]},
    "gpt_oss": {"architectures": ["GptOssForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}},
    "gpt_oss_bf16": {"architectures": ["GptOssForCausalLM"]},
    "llama_4_scout": {"architectures": ["Llama4ForConditionalGeneration"], "vision_config": {"num_hidden_layers": 34}},
    "gemma_3_27b": {"architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {"hidden_size": 1152}},
    "qwen2_5_vl_7b": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "vision_config": {"depth": 32, "hidden_size": 1280},
    },
    "qwen3_8b": {"architectures": ["Qwen3ForCausalLM"]},
    "phi4mm": {"architectures": ["Phi4MMForCausalLM"]},
    "blurred_vision": {"architectures": ["InternVLChatModel"], "vision_config": {"num_hidden_layers": None}},
    "internvl_26b": {
        "architectures": ["InternVLChatModel"],
        "vision_config": {"num_hidden_layers": 45, "hidden_size": 3200},
    },
}

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 96}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "qk_nope_head_dim": 64}

AS_READ: Mapping[str, ModelFacts] = {
    "unheard_of": ModelFacts(LLAMA, refused="transformers knows no model_type 'x'"),
    "sized": ModelFacts({**LLAMA, **SIZES}, config_class="LlamaConfig"),
    "sizeless": ModelFacts(LLAMA, config_class="LlamaConfig"),
    "headless": ModelFacts({**LLAMA, **SIZES, "num_attention_heads": 0}, config_class="LlamaConfig"),
    "typeless": ModelFacts({**LLAMA, **SIZES, "model_type": None}, config_class="LlamaConfig"),
    "ropeless": ModelFacts({**DEEPSEEK, **SIZES, "qk_rope_head_dim": None}, config_class="DeepseekV3Config"),
    "nested": ModelFacts({**LLAMA, "text_config": SIZES}, config_class="LlavaConfig"),
}
"""Models whose config.json was read as SGLang reads it."""


@dataclass(frozen=True)
class Row:
    """One line of a table. ``stands`` are values that an earlier rule has made: set, but not given by the user."""

    rule: Rule
    answer: type | None
    given: Mapping[str, Any]
    stands: Mapping[str, Any]
    gpu: str
    model: str
    env: Mapping[str, str]
    changes: Mapping[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()

    def __str__(self) -> str:
        given = ",".join(f"{name}={value}" for name, value in {**self.given, **self.stands}.items())
        return f"{self.rule.id}-{self.gpu}-{self.model}-{given}"

    def outcome(self) -> Outcome:
        intent = {"model_path": MODEL_PATH, **self.given}
        args = sealed({**fresh_defaults(), **intent, **self.stands})
        facts = Facts(GPUS[self.gpu], model_facts(self.model, intent["model_path"]), self.env, SEED, intent)
        return self.rule.apply(args, facts)

    def check(self) -> None:
        outcome = self.outcome()
        if self.answer is None:
            assert outcome is None
        elif self.answer is Change:
            assert isinstance(outcome, Change)
            assert outcome.values == self.changes
            assert [type(value) for value in outcome.values.values()] == [type(v) for v in self.changes.values()]
            assert outcome.reason
        else:
            assert type(outcome) is self.answer
            assert isinstance(outcome, Refusal)
            assert outcome.fields
            assert outcome.hint or outcome.offers
            for part in self.says:
                assert part in outcome.message


def model_facts(name: str, model_path: Any) -> ModelFacts:
    """The facts of a model of the table; a path that ends in .gguf is a GGUF file here."""
    known = AS_READ[name] if name in AS_READ else ModelFacts(MODELS[name])
    return replace(known, gguf=str(model_path).endswith(".gguf"))


def unchanged(
    rule: Rule,
    *,
    gpu: str = "h100",
    model: str = "llama_3_1_8b",
    env: Mapping[str, str] | None = None,
    stands: Mapping[str, Any] | None = None,
    **given: Any,
) -> Row:
    """The rule has nothing to say."""
    return Row(rule, None, given, stands or {}, gpu, model, env or {})


def changed(
    rule: Rule,
    changes: Mapping[str, Any],
    *,
    gpu: str = "h100",
    model: str = "llama_3_1_8b",
    env: Mapping[str, str] | None = None,
    stands: Mapping[str, Any] | None = None,
    **given: Any,
) -> Row:
    """The rule sets exactly ``changes``, types included."""
    return Row(rule, Change, given, stands or {}, gpu, model, env or {}, changes=changes)


def refused(
    rule: Rule,
    *says: str,
    gpu: str = "h100",
    model: str = "llama_3_1_8b",
    env: Mapping[str, str] | None = None,
    stands: Mapping[str, Any] | None = None,
    **given: Any,
) -> Row:
    """The rule refuses with a message that has all of ``says`` in it, and with fields and a hint."""
    return Row(rule, Refusal, given, stands or {}, gpu, model, env or {}, says=says)


def warned(
    rule: Rule,
    *says: str,
    gpu: str = "h100",
    model: str = "llama_3_1_8b",
    env: Mapping[str, str] | None = None,
    stands: Mapping[str, Any] | None = None,
    **given: Any,
) -> Row:
    """The rule remarks on the values with a message that has all of ``says`` in it."""
    return Row(rule, Notice, given, stands or {}, gpu, model, env or {}, says=says)
