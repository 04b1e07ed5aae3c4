"""What must hold for any model: more GPUs, longer contexts, smaller numbers and larger fractions only go one way.

Drawn ones, and each of the catalog and of the families whose parameters are known, in every format.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sglang_hydra import ModelFacts
from sglang_hydra.architecture.published_checkpoints import CHECKPOINTS
from sglang_hydra.architecture.tensors import OTHER
from sglang_hydra.fit.result import Fit, Weights
from sglang_hydra.fit.sizing import fit
from tests.fit.machines import DATA, catalog, gpu, model

SOME = settings(max_examples=40, deadline=None)
FORMATS: list[dict[str, Any]] = [
    {"quant_method": "fp8", "weight_block_size": [128, 128]},
    {"quant_method": "awq", "bits": 4, "group_size": 128},
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True},
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]},
    {"quant_method": "mxfp4"},
]
FAMILIES = [json.loads(line) for line in (DATA / "memory" / "parameters.jsonl").read_text("utf-8").splitlines()]
KNOWN: dict[str, ModelFacts] = {
    **{name: model(name) for name in catalog()},
    **{checkpoint.path: model(checkpoint.path) for checkpoint in CHECKPOINTS},
    **{family["id"]: ModelFacts(family["config"]) for family in FAMILIES},
}
SPREADS: list[dict[str, Any]] = [
    {},
    {"ep_size": True},
    {"dp_size": True, "enable_dp_attention": True},
    {"dp_size": True, "enable_dp_attention": True, "ep_size": True, "moe_dense_tp_size": 1, "enable_dp_lm_head": True},
]
CONTEXTS = (1, 100, 1024, 4097, 8192, 16384, 32768, 100_000, 131_072, 1_000_000, 10_000_000)
FRACTIONS = (0.05, 0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.88, 0.9, 0.95, 0.99)
NGRAM = {"speculative_algorithm": "NGRAM", "speculative_num_steps": 2, "speculative_num_draft_tokens": 4}


@st.composite
def models(draw: st.DrawFn) -> ModelFacts:
    """A decoder of plausible sizes: dense, with experts, with latent or linear attention, quantized or not."""
    heads = draw(st.sampled_from([8, 16, 32, 64]))
    config: dict[str, Any] = {
        "architectures": [draw(st.sampled_from(["LlamaForCausalLM", "Qwen3MoeForCausalLM", "Qwen3ForCausalLM"]))],
        "hidden_size": heads * draw(st.sampled_from([64, 128])),
        "num_hidden_layers": draw(st.sampled_from([4, 16, 27, 32, 48, 61, 80])),
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([size for size in (1, 2, 4, 8) if size <= heads])),
        "intermediate_size": draw(st.sampled_from([4096, 11008, 28672])),
        "vocab_size": draw(st.integers(1000, 260000)),
        "max_position_embeddings": draw(st.sampled_from([4096, 131072])),
        "tie_word_embeddings": draw(st.booleans()),
    }
    if draw(st.booleans()):
        config |= {"num_experts": draw(st.sampled_from([8, 64, 128])), "num_experts_per_tok": 2}
        config |= {"moe_intermediate_size": draw(st.sampled_from([768, 2048]))}
    if draw(st.booleans()):
        config |= {"kv_lora_rank": 512, "q_lora_rank": draw(st.sampled_from([None, 1536])), "qk_nope_head_dim": 128}
        config |= {"qk_rope_head_dim": 64, "v_head_dim": 128}
    if draw(st.booleans()):
        config["quantization_config"] = draw(st.sampled_from(FORMATS))
    return ModelFacts(config)


def size(facts: ModelFacts, on: str = "h100", **values: Any) -> Fit:
    defaults = {"mem_fraction_static": 0.8, "kv_cache_dtype": "auto", "cuda_graph_max_bs": 32, "page_size": 1}
    return fit({**defaults, **values}, gpu(on), facts)


def formats_of(facts: ModelFacts) -> list[ModelFacts]:
    """A checkpoint as it is published and, where it is not quantized, in each format."""
    config = facts.config or {}
    if "quantization_config" in config:
        return [facts]
    return [facts, *(ModelFacts({**config, "quantization_config": format_}) for format_ in FORMATS)]


@pytest.mark.corpus
@pytest.mark.parametrize("facts", KNOWN.values(), ids=KNOWN)
def test_more_gpus_never_raise_the_weights_of_one_for_any_known_model(facts: ModelFacts) -> None:
    """Tensors never grow. Where DP attention leaves next to nothing to cut, what PyTorch's segments hold beyond them
    may, by less than a tenth."""
    for stored in formats_of(facts):
        for spread in SPREADS:
            few: Weights | None = None
            for gpus in (1, 2, 4, 8, 16, 32):
                arguments = {
                    name: gpus if value is True and "size" in name else value for name, value in spread.items()
                }
                many = size(stored, "h200", tp_size=gpus, **arguments).weights
                assert many.total is not None
                if few is not None:
                    assert few.total is not None
                    assert _tensors(many) <= _tensors(few) * (1 + 1e-12), spread
                    assert many.total <= few.total + (0.1 * few.total if "dp_size" in spread else 0.0), spread
                few = many


def _tensors(weights: Weights) -> float:
    return sum(size or 0.0 for name, size in weights.parts.items() if name != OTHER)


@pytest.mark.corpus
@pytest.mark.parametrize("facts", KNOWN.values(), ids=KNOWN)
def test_longer_contexts_narrow_caches_and_fractions_go_one_way_for_any_known_model(facts: ModelFacts) -> None:
    for arguments in (
        {"tp_size": 8},
        {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True},
        {"pp_size": 2, **NGRAM},
    ):
        wide = size(facts, "h200", **arguments)
        requests = [wide.concurrent_requests(context) for context in CONTEXTS]
        assert None not in requests
        assert requests == sorted(requests, reverse=True)  # type: ignore[type-var]
        for kind in ("fp8_e5m2", "fp8_e4m3"):
            narrow = size(facts, "h200", kv_cache_dtype=kind, **arguments)
            assert (narrow.kv_tokens or 0) >= (wide.kv_tokens or 0)
        for on in ("h200", "l4", "mi300x"):
            tokens = [size(facts, on, **arguments, mem_fraction_static=fraction).kv_tokens for fraction in FRACTIONS]
            assert None not in tokens
            assert tokens == sorted(tokens)  # type: ignore[type-var]


@SOME
@given(models(), st.sampled_from([1, 2, 4, 8]), st.sampled_from(["tp_size", "pp_size"]))
def test_more_gpus_never_raise_the_weights_of_one(facts: ModelFacts, number: int, kind: str) -> None:
    """But for pipeline stages where the layers do not divide by them: SGLang gives the rest to the last one, so that
    of six layers the fullest of three stages holds two and the fullest of four three. The fit has a note then.
    """
    assume(kind == "tp_size" or (facts.config or {})["num_hidden_layers"] % (2 * number) == 0)
    few, many = size(facts, **{kind: number}), size(facts, **{kind: 2 * number})
    assert few.weights.total is not None
    assert many.weights.total is not None
    assert many.weights.total <= few.weights.total


@SOME
@given(models(), st.integers(1, 300000), st.integers(1, 300000))
def test_a_longer_context_never_allows_more_requests(facts: ModelFacts, one: int, other: int) -> None:
    fitted = size(facts)
    short, long = (fitted.concurrent_requests(context) for context in sorted((one, other)))
    assert short is not None
    assert long is not None
    assert long <= short


@SOME
@given(models(), st.sampled_from(["fp8_e5m2", "fp8_e4m3"]), st.sampled_from(["h100", "mi300x"]))
def test_an_fp8_cache_never_holds_fewer_tokens(facts: ModelFacts, kind: str, on: str) -> None:
    wide, narrow = size(facts, on), size(facts, on, kv_cache_dtype=kind)
    assert wide.kv_tokens is not None
    assert narrow.kv_tokens is not None
    assert narrow.kv_tokens >= wide.kv_tokens


@SOME
@given(models(), st.floats(0.05, 0.99), st.floats(0.05, 0.99), st.booleans())
def test_a_larger_fraction_never_lowers_the_tokens(
    facts: ModelFacts, one: float, other: float, speculative: bool
) -> None:
    extra = NGRAM if speculative else {}
    small, large = (size(facts, mem_fraction_static=fraction, **extra) for fraction in sorted((one, other)))
    assert small.kv_tokens is not None
    assert large.kv_tokens is not None
    assert large.kv_tokens >= small.kv_tokens


@SOME
@given(models(), st.floats(0.2, 0.95))
def test_what_surely_fails_has_no_room_and_what_fits_has_some(facts: ModelFacts, fraction: float) -> None:
    fitted = size(facts, mem_fraction_static=fraction)
    if fitted.fits and not fitted.tight:
        assert fitted.kv_tokens
        assert fitted.left is not None
        assert fitted.left > -1e9
    if fitted.kv_tokens:
        assert fitted.interval is not None
        assert fraction >= fitted.interval.low - 0.001


@SOME
@given(models(), st.sampled_from(FRACTIONS), st.sampled_from([1, 2, 8]), st.sampled_from([1, 64]))
@example(KNOWN["qwen3_32b"], 0.6, 2, 1)
def test_both_ends_of_the_interval_work_when_they_are_asked_for(
    facts: ModelFacts, fraction: float, tp_size: int, page_size: int
) -> None:
    typed = {"tp_size": tp_size, "page_size": page_size}
    fitted = size(facts, mem_fraction_static=fraction, **typed)
    assume(fitted.fits and fitted.interval is not None and not fitted.interval.empty)
    assert fitted.interval is not None
    for end in (fitted.interval.low, fitted.interval.high):
        there = size(facts, mem_fraction_static=end, **typed)
        assert there.fits
        assert not there.tight, (end, there.interval)
