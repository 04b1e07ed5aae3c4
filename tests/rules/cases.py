"""Rows of the tests of rules and checks: a rule, the arguments and facts it gets, and what it must answer.

A row is given either arguments (``tp_size=3``), which go to the rule as they are, or a whole command line
(``overrides="gpu=h200 model=qwen3_8b tp_size=3"``), which is planned. The arguments handed to a rule are sealed, so
every row also proves that the rule does not write to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sglang_hydra import GpuFacts, ModelFacts
from sglang_hydra.arguments.fields import fresh_defaults, sealed
from sglang_hydra.rules.checks.releases import answer_of
from sglang_hydra.rules.rule import Change, Facts, Notice, Outcome, Refusal, Rule
from sglang_hydra.text.findings import Finding
from tests.plans import planned

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
    """One line of a table. ``stands`` are values that an earlier rule has made: set, but not given by the user.

    ``answer`` is the type of the rule's answer, None where it must stay silent.
    """

    rule: Rule
    answer: type | None
    given: Mapping[str, Any]
    stands: Mapping[str, Any]
    gpu: str
    model: str
    env: Mapping[str, str]
    changes: Mapping[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    overrides: str = ""

    def __str__(self) -> str:
        if self.overrides:
            return f"{self.rule.id}-{self.overrides[:70]}"
        given = ",".join(f"{name}={value}" for name, value in {**self.given, **self.stands}.items())
        return f"{self.rule.id}-{self.gpu}-{self.model}-{given}"

    def outcome(self) -> Outcome:
        intent = {"model_path": MODEL_PATH, **self.given}
        facts = Facts(GPUS[self.gpu], model_facts(self.model, intent["model_path"]), self.env, SEED, intent)
        if self.rule.stage == "plan":
            return answer_of(self.rule, {**fresh_defaults(), **intent, **self.stands}, facts)
        return self.rule.apply(sealed({**fresh_defaults(), **intent, **self.stands}), facts)

    def findings(self) -> list[Finding]:
        """Those of the plan of ``overrides``, whose words end where the next KEY= begins."""
        words = re.split(r" (?=\S+=)", self.overrides)
        return list(planned(*words, env={"HF_HUB_OFFLINE": "1", **self.env}).findings)

    def check(self, areas: tuple[str, ...] = ()) -> None:
        """Asserts the answer. For a plan, also that no other finding has an id that begins with one of ``areas``."""
        if self.overrides:
            self._check_findings([item for item in self.findings() if item.id.startswith((self.rule.id, *areas))])
            return
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
            assert outcome.remedies
            for part in self.says:
                assert part in outcome.message

    def _check_findings(self, found: list[Finding]) -> None:
        levels = {Refusal: ["error"], Notice: ["warning"], None: []}
        assert [(item.id, item.level) for item in found] == [(self.rule.id, level) for level in levels[self.answer]]
        for item in found:
            assert item.fields
            assert item.ours
            for part in self.says:
                assert part in item.message


def rules_without_rows(rules: Iterable[Rule], rows: Iterable[Row]) -> list[str]:
    """The ids of rules that lack a row where they answer, or one where they stay silent."""
    answers = {(row.rule.id, row.answer is None) for row in rows}
    return [rule.id for rule in rules if not {(rule.id, True), (rule.id, False)} <= answers]


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
    overrides: str = "",
    **given: Any,
) -> Row:
    """The rule answers nothing."""
    return Row(rule, None, given, stands or {}, gpu, model, env or {}, overrides=overrides)


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
    overrides: str = "",
    **given: Any,
) -> Row:
    """The rule refuses with a message that has all of ``says`` in it, and with fields and a hint."""
    return Row(rule, Refusal, given, stands or {}, gpu, model, env or {}, says=says, overrides=overrides)


def warned(
    rule: Rule,
    *says: str,
    gpu: str = "h100",
    model: str = "llama_3_1_8b",
    env: Mapping[str, str] | None = None,
    stands: Mapping[str, Any] | None = None,
    overrides: str = "",
    **given: Any,
) -> Row:
    """The rule warns of the values with a message that has all of ``says`` in it."""
    return Row(rule, Notice, given, stands or {}, gpu, model, env or {}, says=says, overrides=overrides)
