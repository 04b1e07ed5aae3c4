"""Resolving as a whole: what it promises for every intent, and how it reports."""

from __future__ import annotations

import dataclasses
import math
import random
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_hydra import GpuFacts, LoRARef, ModelFacts, Resolution, resolve
from sglang_hydra.arguments.fields import FIELDS, fresh_defaults, sealed
from sglang_hydra.arguments.fields.choices import ATTENTION_BACKEND_CHOICES
from sglang_hydra.rules.order import ORDER
from sglang_hydra.rules.rule import Change, Facts, Outcome
from tests.rules.cases import GPUS, MODEL_PATH, MODELS, SEED

SIZES = st.sampled_from([1, 2, 3, 4, 8, 0, -1])
ODD: st.SearchStrategy[Any] = st.sampled_from([None, 0, -1, True, 0.5, math.nan, 10**30, "", "8", [], [1], {}, (1,)])
PLAUSIBLE: Mapping[str, st.SearchStrategy[Any]] = {
    "tp_size": SIZES,
    "pp_size": st.sampled_from([1, 1, 2]),
    "dp_size": SIZES,
    "ep_size": SIZES,
    "nnodes": SIZES,
    "device": st.sampled_from([None, "cuda", "cpu", "hpu", "npu", "xpu"]),
    "mem_fraction_static": st.none() | st.floats(0, 1),
    "page_size": st.sampled_from([None, 0, 1, 16, 64, 128]),
    "chunked_prefill_size": st.sampled_from([None, -1, 4, 1000, 8192]),
    "schedule_conservativeness": st.floats(allow_infinity=False),
    "attention_backend": st.none() | st.sampled_from(ATTENTION_BACKEND_CHOICES),
    "decode_attention_backend": st.none() | st.sampled_from(ATTENTION_BACKEND_CHOICES),
    "sampling_backend": st.sampled_from([None, "flashinfer", "pytorch"]),
    "moe_runner_backend": st.sampled_from(["auto", "triton_kernel", "flashinfer_trtllm", "flashinfer_cutlass"]),
    "moe_a2a_backend": st.sampled_from(["none", "deepep"]),
    "deepep_mode": st.sampled_from(["auto", "normal"]),
    "speculative_algorithm": st.sampled_from([None, "EAGLE", "NEXTN", "STANDALONE", "OTHER"]),
    "speculative_num_steps": st.sampled_from([None, 0, 3]),
    "speculative_eagle_topk": st.sampled_from([None, 1, 4]),
    "speculative_num_draft_tokens": st.sampled_from([None, 1, 8]),
    "disaggregation_mode": st.sampled_from(["null", "prefill", "decode"]),
    "disaggregation_decode_tp": st.none() | SIZES,
    "hicache_storage_backend": st.sampled_from([None, "mooncake"]),
    "load_format": st.sampled_from(["auto", "dummy", "gguf"]),
    "lora_paths": st.sampled_from([None, [], ["a=/l/a"], {"a": "/l/a"}, [{"lora_name": "a", "lora_path": "/l/a"}], 7]),
    "lora_target_modules": st.sampled_from([None, ["all"], ["q_proj"], ["all", "q_proj"]]),
    "max_lora_rank": st.sampled_from([None, 8]),
    "max_loaded_loras": st.sampled_from([None, 1, 8]),
    "prompt_tokens_buckets": st.sampled_from([None, ["default"], ["tse", "1", "2", "3"], ["customer", "x"]]),
    "json_model_override_args": st.sampled_from(["{}", '{"architectures": ["GptOssForCausalLM"]}', "nope", "[1]"]),
    **{
        name: st.booleans()
        for name in (
            "enable_dp_attention",
            "enable_dp_lm_head",
            "enable_eplb",
            "enable_mixed_chunk",
            "enable_hierarchical_cache",
            "disable_radix_cache",
            "disable_cuda_graph",
            "enable_lora",
            "enable_ep_moe",
            "enable_deepep_moe",
            "enable_triton_kernel_moe",
            "enable_flashinfer_mxfp4_moe",
        )
    },
}


@st.composite
def intents(draw: st.DrawFn) -> dict[str, Any]:
    """A handful of arguments that rules read, most with plausible values and some with odd ones."""
    names = draw(st.lists(st.sampled_from(sorted(PLAUSIBLE)), max_size=8, unique=True))
    odd = draw(st.sets(st.sampled_from(names), max_size=1)) if names else set()
    values = {name: draw(ODD if name in odd else PLAUSIBLE[name]) for name in names}
    return {"model_path": draw(st.sampled_from([MODEL_PATH, "a.gguf", "s3://bucket/model"])), **values}


facts_of_gpus = st.sampled_from(sorted(GPUS)).map(GPUS.__getitem__)
facts_of_models = st.sampled_from(sorted(MODELS)).map(lambda name: ModelFacts(MODELS[name]))
for_any_intent = given(intent=intents(), gpu=facts_of_gpus, model=facts_of_models)
few = settings(max_examples=150, deadline=None)


def _same(left: Any, right: Any) -> bool:
    """Equality of whole records in which nan may occur."""
    return repr(left) == repr(right)


def _resolve(intent: Mapping[str, Any], gpu: GpuFacts, model: ModelFacts) -> Resolution:
    return resolve(intent, gpu=gpu, model=model, seed=SEED)


@few
@for_any_intent
def test_resolving_is_deterministic(intent: dict[str, Any], gpu: GpuFacts, model: ModelFacts) -> None:
    first, second = _resolve(intent, gpu, model), _resolve(intent, gpu, model)
    assert _same(dict(first.values), dict(second.values))
    assert _same(list(first.ledger), list(second.ledger))
    assert _same(first.findings, second.findings)


@few
@for_any_intent
def test_order_of_the_intent_does_not_matter(intent: dict[str, Any], gpu: GpuFacts, model: ModelFacts) -> None:
    shuffled = list(intent.items())
    random.Random(SEED).shuffle(shuffled)
    one, other = _resolve(intent, gpu, model), _resolve(dict(shuffled), gpu, model)
    assert _same(dict(one.values), dict(other.values))
    assert _same(one.findings, other.findings)


@few
@for_any_intent
def test_replaying_the_ledger_gives_the_resolved_values(
    intent: dict[str, Any], gpu: GpuFacts, model: ModelFacts
) -> None:
    resolution = _resolve(intent, gpu, model)
    replayed = resolution.ledger.replay({**fresh_defaults(), **intent})
    assert _same(replayed, dict(resolution.values))


@few
@for_any_intent
def test_user_value_survives_or_a_finding_says_why(intent: dict[str, Any], gpu: GpuFacts, model: ModelFacts) -> None:
    resolution = _resolve(intent, gpu, model)
    for name, value in intent.items():
        now = resolution.values[name]
        if value is None or now is value or (now == value and type(now) is type(value)):
            continue
        first = resolution.ledger.of(name)[0]
        assert first.before is value or first.before == value
        said = [finding for finding in resolution.findings if finding.id == first.rule and name in finding.fields]
        assert said
        assert first.reason in said[0].message


@few
@for_any_intent
def test_resolving_writes_to_nothing_that_it_was_given(
    intent: dict[str, Any], gpu: GpuFacts, model: ModelFacts
) -> None:
    before = repr((intent, gpu, model))
    resolution = _resolve(intent, gpu, model)
    assert repr((intent, gpu, model)) == before
    assert _same(dict(resolution.intent), intent)


@few
@for_any_intent
def test_rules_are_pure(intent: dict[str, Any], gpu: GpuFacts, model: ModelFacts) -> None:
    """Each rule gets arguments that cannot be written to, twice, and must answer the same."""
    values = {**fresh_defaults(), **intent}
    facts = Facts(gpu, model, {}, SEED, intent)
    for rule in ORDER:
        args = sealed(dict(values))
        try:
            outcomes: list[Outcome] = [rule.apply(args, facts) for _ in range(2)]
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
            continue
        finally:
            assert _same(vars(args), values), rule.id
        one, other = outcomes
        assert type(one) is type(other)
        if isinstance(one, Change) and isinstance(other, Change):
            assert (one.reason, repr(one.values)) == (other.reason, repr(other.values))
            values.update(one.values)


@few
@for_any_intent
def test_every_error_says_where_and_what(intent: dict[str, Any], gpu: GpuFacts, model: ModelFacts) -> None:
    resolution = _resolve(intent, gpu, model)
    errors = [finding for finding in resolution.findings if finding.level == "error"]
    assert resolution.ok == (not errors)
    for finding in errors:
        assert finding.message
        assert finding.hint or finding.offers
        assert finding.upstream
    stages = [finding.stage for finding in errors]
    assert stages == sorted(stages, key=["post_init", "check"].index)


H100, LLAMA = GPUS["h100"], ModelFacts(MODELS["llama_3_1_8b"])


def test_all_refusals_are_reported_at_once() -> None:
    resolution = _resolve({"model_path": MODEL_PATH, "base_gpu_id": -1, "nnodes": 3, "page_size": 7}, H100, LLAMA)
    assert [finding.id for finding in resolution.findings] == ["PAR001", "PAR003", "SCH002"]


def test_one_bad_json_is_one_finding() -> None:
    for given_fraction in ({}, {"mem_fraction_static": 0.8}):
        intent = {"model_path": MODEL_PATH, "json_model_override_args": "{oops", **given_fraction}
        assert len(_resolve(intent, H100, LLAMA).findings) == 1


def test_value_of_a_wrong_type_is_a_finding_at_the_rule_that_computes_with_it() -> None:
    resolution = _resolve({"model_path": MODEL_PATH, "tp_size": "8"}, H100, LLAMA)
    first = resolution.findings[0]
    assert (first.id, first.level) == ("MEM001", "error")
    assert "tp_size='8' is not an int" in first.message
    assert first.fields == ("tp_size",)


def test_unknown_and_missing_arguments_are_refused_with_the_nearest_name() -> None:
    (unknown, missing) = resolve({"tpsize": 8}, gpu=H100, model=LLAMA).findings
    assert (unknown.id, missing.id) == ("ARG001", "ARG002")
    assert unknown.hint is not None
    assert "tp_size" in unknown.hint


def test_a_change_of_form_is_a_remark_and_no_warning() -> None:
    resolution = _resolve({"model_path": MODEL_PATH, "lora_paths": ["a=/l/a"]}, H100, LLAMA)
    assert resolution.values["lora_paths"] == [LoRARef("a", "/l/a", False)]
    assert [(finding.id, finding.level) for finding in resolution.findings] == [("LOR005", "info")]


def test_an_overridden_value_is_a_warning_with_both_values() -> None:
    intent = {"model_path": MODEL_PATH, "page_size": 16, "attention_backend": "flashmla"}
    (finding,) = _resolve(intent, H100, LLAMA).findings
    assert (finding.level, finding.id, finding.fields) == ("warning", "PAG002", ("page_size",))
    assert "16" in finding.message
    assert "64" in finding.message


def test_nothing_is_refused_for_a_model_that_is_not_known() -> None:
    assert _resolve({"model_path": MODEL_PATH, "speculative_algorithm": "EAGLE"}, H100, ModelFacts(None)).ok


def test_seed_is_drawn_if_none_is_given() -> None:
    drawn = {resolve({"model_path": "x"}, gpu=H100, model=LLAMA).values["random_seed"] for _ in range(5)}
    assert len(drawn) > 1
    assert all(0 <= seed <= 1 << 30 for seed in drawn)


def test_arguments_are_sealed() -> None:
    args = _resolve({"model_path": MODEL_PATH}, H100, LLAMA).args
    assert args.tp_size == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        args.tp_size = 2


def test_values_hold_every_argument() -> None:
    assert list(_resolve({"model_path": MODEL_PATH}, H100, LLAMA).values) == list(FIELDS)


def test_environment_is_what_sglang_would_set() -> None:
    resolution = _resolve({"model_path": MODEL_PATH, "enable_torch_compile": True}, H100, LLAMA)
    assert resolution.env == {
        "SGLANG_ENABLE_TORCH_COMPILE": "1",
        "SGLANG_MAMBA_SSM_DTYPE": "float32",
        "SGLANG_DISABLE_OUTLINES_DISK_CACHE": "0",
    }


def test_resolving_imports_nothing_heavy() -> None:
    program = (
        "import sys; from sglang_hydra import GpuFacts, ModelFacts, resolve; "
        "resolve({'model_path': 'x'}, gpu=GpuFacts('none', 'none', 'cpu'), model=ModelFacts(None)); "
        "print([m for m in ('hydra', 'omegaconf', 'yaml', 'torch', 'transformers', 'asyncio') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpu": "h200"}, "gpu is a GpuFacts"),
        ({"model": {"architectures": []}}, "model is a ModelFacts"),
    ],
)
def test_facts_of_another_kind_are_a_type_error(changes: dict[str, Any], said: str) -> None:
    facts: dict[str, Any] = {"gpu": GPUS["h100"], "model": ModelFacts({})}
    with pytest.raises(TypeError, match=said):
        resolve({"model_path": MODEL_PATH}, **{**facts, **changes})


@pytest.mark.parametrize("written", ["9.0", 9.0, 9])
def test_a_compute_capability_as_presets_write_it_is_a_type_error(written: Any) -> None:
    with pytest.raises(TypeError, match=r"as \(9, 0\)"):
        GpuFacts("mine", vendor="nvidia", device="cuda", compute_capability=written)
