"""What must hold for any model: more GPUs, longer contexts, smaller numbers and larger fractions only go one way."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sglang_hydra import ModelFacts
from sglang_hydra.fit import Fit, fit
from tests.fit.machines import gpu

SOME = settings(max_examples=40, deadline=None)


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
        config["quantization_config"] = draw(
            st.sampled_from(
                [
                    {"quant_method": "fp8", "weight_block_size": [128, 128]},
                    {"quant_method": "awq", "bits": 4, "group_size": 128},
                    {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True},
                ]
            )
        )
    return ModelFacts(config)


def size(facts: ModelFacts, on: str = "h100", **values: Any) -> Fit:
    defaults = {"mem_fraction_static": 0.8, "kv_cache_dtype": "auto", "cuda_graph_max_bs": 32, "page_size": 1}
    return fit({**defaults, **values}, gpu(on), facts)


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
    extra = (
        {"speculative_algorithm": "NGRAM", "speculative_num_steps": 2, "speculative_num_draft_tokens": 4}
        if speculative
        else {}
    )
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
