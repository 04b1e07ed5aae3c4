"""The KV cache: bytes per token by kind of attention, and the tokens of the pool."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_hydra import ModelFacts
from sglang_hydra.fit.result import Fit, KvCache
from sglang_hydra.fit.sizing import fit, logged_pool
from tests.fit.machines import GIB, dense, gpu, model, sized

V3 = "deepseek-ai/DeepSeek-V3"
V32 = ModelFacts(
    {
        **(model(V3).config or {}),
        "architectures": ["DeepseekV32ForCausalLM"],
        "index_n_heads": 64,
        "index_head_dim": 128,
    }
)


@pytest.mark.parametrize(
    ("path", "arguments", "size"),
    [
        ("llama_3_1_8b", {}, 131072),
        ("llama_3_1_8b", {"kv_cache_dtype": "fp8_e5m2"}, 65536),
        ("llama_3_1_70b", {"tp_size": 8}, 40960),
        ("llama_3_1_70b", {"tp_size": 16}, 40960),  # one KV head on each, repeated
        ("llama_3_1_70b", {"tp_size": 4, "pp_size": 2}, 40960 * 2 / 2),
        ("qwen3_235b_a22b", {"tp_size": 4}, 48128),
        (V3, {"tp_size": 8}, 61 * 576 * 2),
        (V3, {"tp_size": 16}, 61 * 576 * 2),
        (V3, {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3"}, 61 * 576),
        ("gemma_2_9b", {}, 42 * 8 * 256 * 2 * 2),
        ("gpt_oss_120b", {"tp_size": 8}, 36 * 64 * 2 * 2),
        ("qwen3_next_80b_a3b", {"tp_size": 2}, 12 * 256 * 2 * 2),
        ("llama_3_1_8b", {"dtype": "float32"}, 262144),
    ],
)
def test_a_token_takes_this_many_bytes(path: str, arguments: dict[str, Any], size: int) -> None:
    kv = sized("h100", path, arguments).kv
    assert kv is not None
    assert kv.bytes_per_token == size


@pytest.mark.parametrize(
    ("on", "arguments", "latent"),
    [
        ("h200", {}, 576 * 2),
        ("h200", {"kv_cache_dtype": "fp8_e4m3"}, 656),
        ("b200", {}, 576 * 2),
        ("b200", {"kv_cache_dtype": "fp8_e4m3"}, 576),  # plain rows, without scales
    ],
)
def test_sparse_attention_also_caches_its_index(on: str, arguments: dict[str, Any], latent: int) -> None:
    kv = sized(on, V32, {"tp_size": 8, **arguments}).kv
    assert kv is not None
    assert [kind.bytes_per_token for kind in kv.kinds] == [61 * latent, 61 * 132]


def test_dp_attention_keeps_more_heads_on_each_gpu() -> None:
    kv = sized("h200", "qwen3_235b_a22b", {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}).kv
    assert kv is not None
    assert kv.bytes_per_token == 94 * 2 * 128 * 2 * 2


def test_the_pool_is_what_the_fraction_leaves_after_the_weights() -> None:
    fitted = sized("h100", dense(), {"mem_fraction_static": 0.5}, free_gib=40.0)
    assert fitted.weights.total is not None
    assert fitted.kv is not None
    assert fitted.kv_tokens == int((40 * GIB * 0.5 - fitted.weights.total) // fitted.kv.bytes_per_token)


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [({"max_total_tokens": 1000}, 1000), ({"max_total_tokens": 1000, "page_size": 64}, 960)],
)
def test_a_limit_and_pages_cut_the_pool(arguments: dict[str, Any], tokens: int) -> None:
    assert sized("h100", dense(), arguments).kv_tokens == tokens


def test_speculative_decoding_adds_tokens_for_its_drafts() -> None:
    arguments = {
        "speculative_algorithm": "EAGLE",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "max_running_requests": 32,
        "mem_fraction_static": 0.8,
    }
    kv = sized("h200", V3, {"tp_size": 8, **arguments}).kv
    assert kv is not None
    assert kv.tokens is not None
    assert kv.profiled is not None
    assert kv.tokens - kv.profiled == 32 * (3 + 4) + 100


SLIDING = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 512}
SPLIT = {"mem_fraction_static": 0.8, "disable_hybrid_swa_memory": False, "swa_full_tokens_ratio": 0.5}


def pools(facts: ModelFacts, **values: Any) -> tuple[Fit, KvCache]:
    """The fit of arguments as they are: SGLang's own rules would not split the pool of the classes that could."""
    fitted = fit(values, gpu("h100"), facts)
    assert fitted.kv is not None
    return fitted, fitted.kv


def test_sliding_windows_have_a_smaller_pool_where_that_is_not_disabled() -> None:
    windows = dense(architectures=["Gemma2ForCausalLM"], **SLIDING)
    _, kv = pools(windows, **SPLIT)
    _, shared = pools(windows, **{**SPLIT, "disable_hybrid_swa_memory": True})
    assert shared.sliding_tokens is None
    assert shared.tokens is not None
    assert kv.tokens == int(shared.tokens * 4 / (0.5 * 2 + 2))
    assert kv.sliding_tokens == int(kv.tokens * 0.5)


def test_a_split_of_the_pool_takes_no_memory() -> None:
    windows = dense(architectures=["Gemma2ForCausalLM"], **SLIDING)
    split, kv = pools(windows, **SPLIT)
    shared, whole = pools(windows, **{**SPLIT, "disable_hybrid_swa_memory": True})
    assert (split.fits, split.interval, split.left) == (shared.fits, shared.interval, shared.left)
    assert (kv.size, kv.slots) == (whole.size, whole.slots)


def test_the_cache_of_a_draft_is_that_of_the_pool_before_its_split() -> None:
    windows = dense(architectures=["Gemma2ForCausalLM"], **SLIDING)
    drafting = {"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "d", "speculative_num_steps": 1}
    caches = []
    for disabled in (False, True):
        values = {**SPLIT, **drafting, "disable_hybrid_swa_memory": disabled}
        draft = dense(architectures=["LlamaForCausalLMEagle"], num_hidden_layers=1)
        caches.append(fit(values, gpu("h100"), windows, draft=draft).draft)
    assert caches[0] == caches[1]


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "MistralForCausalLM", "Cohere2ForCausalLM", "Later"])
def test_a_class_that_keeps_its_window_to_itself_has_one_pool(architecture: str) -> None:
    _, kv = pools(dense(architectures=[architecture], **SLIDING), **SPLIT)
    assert kv.sliding_tokens is None
    assert [kind.kind for kind in kv.kinds] == ["full attention"]


def test_llama_4_splits_its_pool_by_the_chunk_of_its_text_config() -> None:
    config = dict(model("llama_4_scout").config or {})
    config["text_config"] = {**config["text_config"], "attention_chunk_size": 8192}
    arguments = {"tp_size": 8, "attention_backend": "fa3", "context_length": 65536, "page_size": 64}
    whole = sized("h200", ModelFacts(config), arguments).kv
    split = sized("h200", ModelFacts(config), {**arguments, "hybrid_kvcache_ratio": 0.5}).kv
    short = sized("h200", ModelFacts(config), {**arguments, "hybrid_kvcache_ratio": 0.5, "context_length": 8192}).kv
    assert whole is not None
    assert split is not None
    assert short is not None
    assert whole.tokens is not None
    window = 0.5 + 0.5 * 8192 / 65536
    sliding = 4 * whole.tokens * window // (3 * window + 1)
    assert split.sliding_tokens == sliding // 64 * 64
    assert split.tokens == (4 * whole.tokens - 3 * sliding) // 64 * 64
    assert short.sliding_tokens is None


def test_the_profile_of_linear_attention_counts_the_layers_of_all_stages() -> None:
    values = {"pp_size": 2, "tp_size": 2, "mem_fraction_static": 0.8}
    fitted, kv = pools(model("qwen3_next_80b_a3b"), **values)
    assert fitted.free is not None
    assert fitted.weights.total is not None
    assert kv.bytes_per_token == 6 * 256 * 2 * 2
    room = fitted.free.mid * 0.8 - fitted.weights.total - kv.state
    assert kv.profiled == int(room // (12 * 256 * 2 * 2))


def test_requests_are_counted_from_the_memory_and_not_from_a_limit() -> None:
    limited = sized("h200", dense(), {"max_total_tokens": 1000}).kv
    assert limited is not None
    assert limited.slots == 4096


def test_linear_attention_keeps_states_instead_of_tokens() -> None:
    arguments = {"tp_size": 4, "max_mamba_cache_size": 100, "mem_fraction_static": 0.8}
    fitted = sized("h100", "qwen3_next_80b_a3b", arguments)
    one = (8192 // 4 * 3 * 2 + 32 // 4 * 128 * 128 * 4) * 36
    assert fitted.kv is not None
    assert fitted.kv.state == 100 * one
    half = sized("h100", "qwen3_next_80b_a3b", {**arguments, "mamba_ssm_dtype": "bfloat16"})
    assert half.kv is not None
    assert half.kv.state < 0.6 * fitted.kv.state
    assert fitted.concurrent_requests(10) == 100


LATER = ModelFacts({**(model("qwen3_next_80b_a3b").config or {}), "architectures": ["Qwen3NextOfALaterRelease"]})


def test_a_later_release_gives_states_a_share_of_the_memory() -> None:
    fitted = sized("h200", LATER, {"tp_size": 2, "mem_fraction_static": 0.8})
    assert fitted.kv is not None
    assert fitted.kv.size is not None
    assert fitted.kv.slots is not None
    one = fitted.kv.state / (fitted.kv.slots + 1)  # one slot is padding
    assert 0 <= 0.9 * fitted.kv.size - fitted.kv.state < 2 * one
    less = sized("h200", LATER, {"tp_size": 2, "mem_fraction_static": 0.7})
    assert less.kv is not None
    assert less.kv.state < fitted.kv.state
    assert less.interval is not None
    assert fitted.interval is not None
    assert less.interval.low == fitted.interval.low  # few states will do


def test_a_later_release_takes_its_requests_for_states_only_without_the_prefix_cache() -> None:
    limit = {"tp_size": 2, "mem_fraction_static": 0.8, "max_running_requests": 8}
    states = []
    for arguments in (limit, {**limit, "disable_radix_cache": True}, {**limit, "max_mamba_cache_size": 16}):
        kv = sized("h200", LATER, arguments).kv
        assert kv is not None
        states.append(kv.state)
    one = states[1] / 9
    assert states[2] == pytest.approx(17 * one)
    assert states[0] > states[2]


def test_a_log_of_a_later_release_has_its_states_taken_off() -> None:
    values = {"mem_fraction_static": 0.8, "tp_size": 2}
    with_states = logged_pool(values, gpu("h200"), LATER, before_gib=130.0, after_gib=60.0)
    without = logged_pool(values, gpu("h200"), LATER, before_gib=130.0, after_gib=60.0, with_states=False)
    assert with_states is not None
    assert without is not None
    assert with_states == pytest.approx(without / 1.9, rel=0.01)


def test_the_aiter_backend_works_with_less_where_contexts_are_long() -> None:
    long = sized("mi300x", "llama_3_1_8b", {"mem_fraction_static": 0.8})
    short = sized("mi300x", "llama_3_1_8b", {"mem_fraction_static": 0.8, "context_length": 8192})
    assert (long.fraction, short.fraction) == (pytest.approx(0.68), 0.8)


def test_requests_share_the_pool_and_replicas_multiply_them() -> None:
    one = sized("h100", "llama_3_1_8b")
    assert one.kv_tokens is not None
    assert one.concurrent_requests(8192) == one.kv_tokens // 8192
    two = sized("h100", "llama_3_1_8b", {"dp_size": 2})
    assert (two.gpus, two.concurrent_requests(8192)) == (2, 2 * (one.kv_tokens // 8192))
    assert sized("h100", "llama_3_1_8b", {"max_running_requests": 3}).concurrent_requests(1024) == 3


def test_dp_attention_shares_the_gpus_and_the_running_requests() -> None:
    fitted = sized("h200", V3, {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True, "max_running_requests": 64})
    assert (fitted.gpus, fitted.replicas, fitted.concurrent_requests(1)) == (8, 8, 64)


def test_no_room_is_no_tokens_and_no_requests() -> None:
    fitted = sized("h100", V3, {"tp_size": 8})
    assert (fitted.kv_tokens, fitted.concurrent_requests(100)) == (0, 0)


def test_the_logs_own_arithmetic() -> None:
    values = {"mem_fraction_static": 0.8, "tp_size": 4}
    tokens = logged_pool(values, gpu("rtx_4090"), dense(), before_gib=23.08, after_gib=16.0)
    cell = 4 * 128 * 2 * 2
    assert tokens == int((16.0 - 23.08 * 0.2) * GIB // cell)
    assert logged_pool(values, gpu("rtx_4090"), ModelFacts(None), before_gib=1, after_gib=1) is None
