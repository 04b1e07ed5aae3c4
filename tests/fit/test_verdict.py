"""The verdict: what surely fails, what fits, which fractions work and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

import sglang_hydra
from sglang_hydra import ModelFacts
from sglang_hydra.fit.result import KvCache
from sglang_hydra.fit.verdict import _without_room
from tests.fit.machines import DATA, GIB, dense, sized

V3 = "deepseek-ai/DeepSeek-V3"
EAGLE_70B = ModelFacts(
    {
        "architectures": ["LlamaForCausalLMEagle"],
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_hidden_layers": 1,
        "vocab_size": 128256,
    },
    source="draft/config.json",
)
# The docs' EAGLE settings of the time of the report; the report names no model. Of the usual ones, a 70B AWQ
# checkpoint is the one whose weights end between the two fractions that it gives.
EAGLE_ON_L40S = {
    "speculative_algorithm": "EAGLE",
    "speculative_draft_model_path": "org/draft",
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 8,
    "speculative_num_draft_tokens": 64,
}
AWQ_70B = "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4"
# GLM-5's config.json: 744B parameters, sparse attention as in DeepSeek-V3.2.
GLM_5 = ModelFacts(json.loads((DATA / "catalog" / "glm_5_fp8.json").read_text("utf-8")), source="glm_5_fp8.json")


@pytest.mark.parametrize(
    ("on", "facts", "arguments", "options", "reason"),
    [
        ("h100", V3, {"tp_size": 8}, {}, "the weights need 79.7 GiB on each GPU"),
        ("h100", "lmsys/gpt-oss-120b-bf16", {"tp_size": 2}, {}, "the weights need 109.1 GiB on each GPU"),
        ("h100", "meta-llama/Llama-3.1-405B-Instruct", {"tp_size": 8}, {}, "the weights need 94.6 GiB on each GPU"),
        ("l40s", AWQ_70B, {**EAGLE_ON_L40S, "mem_fraction_static": 0.84}, {"draft": EAGLE_70B}, "outside weights"),
        ("l40s", AWQ_70B, {**EAGLE_ON_L40S, "mem_fraction_static": 0.85}, {"draft": EAGLE_70B}, "outside weights"),
        (
            "h200",
            GLM_5,
            {
                "tp_size": 8,
                "dp_size": 8,
                "enable_dp_attention": True,
                "chunked_prefill_size": 32768,
                "mem_fraction_static": 0.484,  # what the faulty default was
            },
            {},
            "leave nothing for the KV cache",
        ),
    ],
    ids=["v3-h100", "gpt-oss-bf16", "405b-h100", "l40s-084", "l40s-085", "glm-chunk"],
)
def test_published_mistakes_do_not_fit(
    on: str, facts: ModelFacts | str, arguments: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    fitted = sized(on, facts, arguments, **options)
    assert fitted.fits is False
    assert reason in " ".join(fitted.reasons)


def test_a_model_that_does_not_fit_eight_h100_fits_eight_h200() -> None:
    fitted = sized("h200", V3, {"tp_size": 8})
    assert (fitted.fits, fitted.tight, fitted.reasons) == (True, False, ())
    assert fitted.left is not None
    assert fitted.left > 0


def test_an_empty_interval_says_why_at_both_ends() -> None:
    interval = sized("l40s", AWQ_70B, {**EAGLE_ON_L40S, "mem_fraction_static": 0.84}, draft=EAGLE_70B).interval
    assert interval is not None
    assert interval.empty
    assert "37.1 GiB of weights" in interval.low_reason
    assert "remain for graphs" in interval.high_reason


def test_the_ends_of_the_interval_are_where_it_stops_to_work() -> None:
    interval = sized("h100", "qwen3_32b").interval
    assert interval is not None
    assert not interval.empty
    inside, below, above = (
        sized("h100", "qwen3_32b", {"mem_fraction_static": fraction})
        for fraction in ((interval.low + interval.high) / 2, interval.low - 0.005, interval.high + 0.005)
    )
    assert (inside.fits, inside.tight, inside.kv_tokens != 0) == (True, False, True)
    assert below.kv_tokens == 0
    assert above.tight or above.fits is False
    assert above.left is not None
    assert above.left < 0


def test_memory_reserved_for_others_is_not_there() -> None:
    alone, beside = sized("h100", "qwen3_32b"), sized("h100", "qwen3_32b", reserved_gib=30.0)
    assert (alone.fits, beside.fits) == (True, False)
    assert alone.free is not None
    assert beside.free is not None
    assert beside.free.mid == alone.free.mid - 30 * GIB


def test_measured_free_memory_replaces_the_estimate() -> None:
    fitted = sized("h100", "llama_3_1_8b", free_gib=20.0)
    assert fitted.free is not None
    assert fitted.free.low == fitted.free.high == 20 * GIB


def test_a_limited_pool_leaves_memory_outside_it() -> None:
    full = sized("h100", "llama_3_1_8b", {"mem_fraction_static": 0.99})
    limited = sized("h100", "llama_3_1_8b", {"mem_fraction_static": 0.99, "max_total_tokens": 10000})
    assert (full.fits, limited.fits) == (False, True)


def test_the_table_of_a_very_long_context_counts() -> None:
    arguments = {"tp_size": 8, "attention_backend": "fa3", "context_length": 2500000}
    fitted = sized("h200", "llama_4_scout", arguments)
    assert fitted.request_table is not None
    assert fitted.request_table >= 2048 * 2500000 * 4
    assert fitted.fits is False


@pytest.mark.parametrize(
    ("field", "missing"),
    [
        ("hidden_size", "hidden_size"),
        ("num_hidden_layers", "num_hidden_layers"),
        ("num_attention_heads", "num_attention_heads"),
        ("vocab_size", "vocab_size"),
        ("intermediate_size", "intermediate_size"),
        ("architectures", "architectures"),
    ],
)
def test_a_missing_fact_makes_the_verdict_open_and_is_named(field: str, missing: str) -> None:
    config = {name: value for name, value in (dense().config or {}).items() if name != field}
    fitted = sized("h100", ModelFacts(config))
    assert fitted.fits is None
    assert fitted.unknown == (missing,)
    assert fitted.weights.total is None


def test_without_a_config_nothing_is_claimed() -> None:
    fitted = sized("h100", ModelFacts(None))
    assert (fitted.fits, fitted.kv, fitted.left, fitted.interval) == (None, None, None, None)
    assert fitted.unknown == ("config.json of org/model",)


def test_known_parts_that_are_too_large_fail_whatever_the_unknown_ones_are() -> None:
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"}
    text = {
        "hidden_size": 5376,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "intermediate_size": 21504,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
    }
    facts = ModelFacts({**config, "text_config": text})
    fitted = sized("rtx_4090", facts)
    assert fitted.fits is False
    assert fitted.unknown == ("vision_config",)
    assert fitted.weights.parts["vision tower"] is None
    assert sized("h200", facts).fits is None


def test_a_draft_that_is_not_known_leaves_the_verdict_open() -> None:
    arguments = {"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "org/draft"}
    fitted = sized("h100", "llama_3_1_8b", arguments)
    assert fitted.fits is None
    assert fitted.unknown == ("config.json of the draft model org/draft",)


def test_everything_is_plain_json() -> None:
    for on, facts in (("h200", "deepseek_v3"), ("h100", ModelFacts(None))):
        record = json.loads(json.dumps(sized(on, facts, {"tp_size": 8}).to_json()))
        assert set(record) >= {"fits", "weights", "kv_cache", "interval", "left_gib", "error_gib", "sources"}


def test_a_pool_without_a_token_is_an_error_and_fewer_requests_make_room() -> None:
    """DeepSeek-V4 keeps states for each request: those of 2,048 take the whole pool (0.5.23
    model_executor/pool_configurator.py:1509-1528, 1565-1574). Without its wheel, a release's own number is unknown."""
    words = ["gpu=h200", "model=deepseek_v4_pro", "tp_size=8", "mem_fraction_static=0.88", "engine.version=0.5.23"]
    assert sglang_hydra.plan(words).launchable is None
    words.append("max_running_requests=2048")
    refused = sglang_hydra.plan(words)
    (finding,) = refused.errors
    assert (finding.id, refused.launchable) == ("FIT001", False)
    change = next(remedy.words for remedy in finding.remedies if remedy.words)
    mended = sglang_hydra.plan([*words, *change])
    assert not mended.errors
    assert (mended.fit.kv_tokens or 0) > 1_000_000


def test_a_server_without_a_slot_serves_no_request() -> None:
    cache = KvCache((), 1.0, 2.0, 4096, profiled=100, tokens=100, size=100.0, slots=0)
    assert _without_room(cache, 0.9) == ["the server has no slot for a request"]
    assert _without_room(cache._replace(slots=1), 0.9) == []
