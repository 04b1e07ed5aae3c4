"""The fit of today's models by the release that serves them: caches, states, windows, formats and ranks."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from sglang_hydra import ModelFacts, resolve
from sglang_hydra.fit.overheads import allocation_of
from sglang_hydra.fit.result import Fit, KvCache
from sglang_hydra.fit.sizing import fit
from tests.fit.machines import GIB, REPOSITORY, gpu

CONFIGS = REPOSITORY / "conf" / "configs"
V4 = "deepseek-ai--DeepSeek-V4-Flash"
FP8 = {"kv_cache_dtype": "fp8_e4m3"}
LING = {
    "architectures": ["BailingMoeV3ForCausalLM"], "hidden_size": 1536, "num_hidden_layers": 24, "head_dim": 128,
    "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 4608, "moe_intermediate_size": 512,
    "moe_shared_expert_intermediate_size": 512, "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 1,
    "first_k_dense_replace": 1, "layer_group_size": 4, "q_lora_rank": 256, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "short_conv_kernel_size": 4, "no_kda_lora": True,
    "gated_attention_proj_granularity_type": "head_wise", "vocab_size": 157184, "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
}  # fmt: skip


@cache
def published(name: str) -> ModelFacts:
    """The facts of a whole config in conf/configs, with the quantization that stands beside it."""
    config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    beside = CONFIGS / f"{name}.hf_quant_config.json"
    if beside.is_file():
        stated = json.loads(beside.read_text(encoding="utf-8"))["quantization"]
        config["quantization_config"] = {"quant_method": "modelopt", **stated}
    return ModelFacts(config, source=name)


def served(name: str | ModelFacts, on: str, release: str | None, arguments: dict[str, Any]) -> Fit:
    """The fit of a server of ``release``: 0.5.2's values, with what only later releases have and their own pools."""
    facts = name if isinstance(name, ModelFacts) else published(name)
    values = dict(resolve({"model_path": "org/model", **arguments}, gpu=gpu(on), model=facts, seed=1).values)
    values |= {"disable_hybrid_swa_memory": False, **arguments}
    return fit(values, gpu(on), facts, release=release)


def cached(*arguments: Any) -> KvCache:
    kv = served(*arguments).kv
    assert kv is not None
    return kv


@pytest.mark.parametrize(
    ("name", "on", "release", "arguments", "size"),
    [
        # index keys stand in every layer until 0.5.18, then in the 21 of 78 that have an indexer
        ("zai-org--GLM-5.2", "h200", "0.5.17", {}, 78 * (1152 + 132)),
        ("zai-org--GLM-5.2", "h200", "0.5.18", {}, 78 * 1152 + 21 * 132),
        ("zai-org--GLM-5.2", "h200", None, {}, 78 * 1152 + 21 * 132),
        ("zai-org--GLM-5.2", "h200", "0.5.23", FP8, 78 * 656 + 21 * 132),
        ("zai-org--GLM-5.2", "b200", "0.5.23", FP8, 78 * 576 + 21 * 132),
        ("zai-org--GLM-5.3", "h200", "0.5.23", {}, 78 * 1152 + 21 * 132),  # its qk_rope_head_dim is 0
        (V4, "h200", "0.5.12", {"page_size": 256}, 15955.85),  # as a server logged it
        (V4, "h200", "0.5.13", {"page_size": 256}, 15956 - 0.15 - 584 * 0.1),  # without the draft's layer
        (V4, "h200", "0.5.23", {"page_size": 256}, 7086.75),
        ("nvidia--MiniMax-M3-NVFP4", "b200", "0.5.23", {}, 60 * 512 + 57 * 256),
        ("MiniMaxAI--MiniMax-M2.5", "h200", "0.5.23", {}, 62 * 512),  # attn_type_list: all of them are attention
        ("moonshotai--Kimi-K3", "b300", "0.5.19", FP8, 24 * 576),
        ("google--gemma-4-26B-A4B", "h200", "0.5.23", {"tp_size": 1}, 5 * 4096 + 25 * 8192),
        ("XiaomiMiMo--MiMo-V2-Flash", "h200", "0.5.23", {}, 9 * 640 + 39 * 640),
        ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", "b200", "0.5.23", {}, 12 * 256),
        ("Qwen--Qwen3.5-397B-A17B", "b200", "0.5.23", {}, 15 * 1024),
        ("nvidia--Qwen3.6-27B-NVFP4", "b200", "0.5.23", {"tp_size": 1}, 16 * 2048),  # FP8 by the checkpoint
        (ModelFacts(LING), "h200", "0.5.17", {"tp_size": 1}, 6 * 1152),  # every fourth layer is attention
    ],
)  # fmt: skip
def test_a_token_takes_this_many_bytes(
    name: str | ModelFacts, on: str, release: str | None, arguments: dict[str, Any], size: float
) -> None:
    assert cached(name, on, release, {"tp_size": 8, **arguments}).bytes_per_token == pytest.approx(size)


@pytest.mark.parametrize(
    ("name", "release", "arguments", "part", "size"),
    [
        ("nvidia--Qwen3.6-27B-NVFP4", "0.5.13", {"tp_size": 1}, "dense MLP", 10.30),  # scales twice
        ("nvidia--Qwen3.6-27B-NVFP4", "0.5.14", {"tp_size": 1}, "dense MLP", 9.32),
        ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", "0.5.23", {}, "routed experts", 33.75),
        ("deepseek-ai--DeepSeek-V4-Pro", "0.5.23", {}, "routed experts", 95.70),  # MXFP4 in an FP8 checkpoint
        ("google--gemma-4-26B-A4B", "0.5.23", {"tp_size": 1}, "vision tower", 1.07),
        ("moonshotai--Kimi-K3", "0.5.23", {}, "vision tower", 0.83),
        ("Qwen--Qwen3-30B-A3B", "0.5.23", {"ep_size": 8}, "routed experts", 6.75),
        ("Qwen--Qwen3-30B-A3B", "0.5.23", {"ep_size": 8, "ep_num_redundant_experts": 8}, "routed experts", 7.17),
        ("Qwen--Qwen3-235B-A22B", "0.5.23", {}, "attention", 1.65),
        ("Qwen--Qwen3-235B-A22B", "0.5.23", {"attn_cp_size": 2}, "attention", 3.12),  # over 4 of the 8 GPUs
    ],
)  # fmt: skip
def test_a_part_of_the_weights_takes_this_much(
    name: str, release: str, arguments: dict[str, Any], part: str, size: float
) -> None:
    parts = served(name, "b200", release, {"tp_size": 8, **arguments}).weights.parts
    assert parts[part] / GIB == pytest.approx(size, abs=0.006)


def test_a_group_for_decoding_shares_the_cache_of_a_token() -> None:
    alone, shared = (
        cached("Qwen--Qwen3-235B-A22B", "h200", "0.5.23", {"tp_size": 8, "dcp_size": size}) for size in (1, 2)
    )
    assert alone.bytes_per_token == shared.bytes_per_token
    assert shared.tokens == pytest.approx(2 * (alone.tokens or 0), rel=0.001)


def test_states_are_made_by_the_rules_of_each_release() -> None:
    def state(release: str | None, **arguments: Any) -> float:
        return cached("Qwen--Qwen3.5-397B-A17B", "b200", release, {"tp_size": 8, **arguments}).state / GIB

    by_release = {release: state(release) for release in ("0.5.5", "0.5.10", "0.5.13", "0.5.17", "0.5.23")}
    assert all(size > 1 for size in by_release.values()), by_release
    assert by_release["0.5.23"] == pytest.approx(24.62, abs=0.05)
    assert state("0.5.23", max_mamba_cache_size=64) < state("0.5.23", max_mamba_cache_size=128) < 24
    assert state("0.5.23", mamba_full_memory_ratio=0.5) < state("0.5.23", mamba_full_memory_ratio=0.9)


def test_windows_have_a_pool_by_bytes_and_then_by_requests() -> None:
    def pools(release: str, **arguments: Any) -> tuple[int | None, int | None]:
        kv = cached("XiaomiMiMo--MiMo-V2-Flash", "h200", release, {"tp_size": 8, **arguments})
        return kv.tokens, kv.sliding_tokens

    full, sliding = pools("0.5.21")
    assert full is not None
    assert sliding == pytest.approx(0.8 * full, rel=1e-5)
    wider, narrow = pools("0.5.21", swa_full_tokens_ratio=0.1)
    assert wider is not None
    assert narrow is not None
    assert wider > 2.5 * full
    assert narrow < 0.13 * wider


def test_a_pool_of_windows_below_its_floor_is_refused_since_the_release_that_refuses_it() -> None:
    small = {"tp_size": 8, "swa_full_tokens_ratio": 0.0001, "max_total_tokens": 200_000, "page_size": 64}
    refused = served("XiaomiMiMo--MiMo-V2-Flash", "h200", "0.5.20", small)
    assert refused.fits is False
    assert any("window" in reason for reason in refused.reasons), refused.reasons
    assert served("XiaomiMiMo--MiMo-V2-Flash", "h200", "0.5.19", small).fits is not False


@pytest.mark.parametrize(("version", "hangs"), [("0.5.13", True), ("0.5.19", True), ("0.5.20", False)])
def test_a_pool_of_one_page_serves_no_request_of_deepseek_v4(version: str, hangs: bool) -> None:
    """sgl-project/sglang#37610: with max_total_tokens=4096 the pool is a page, of which releases before 0.5.20 say
    nothing; with 8192 it is three pages."""
    small, enough = (
        served(
            "deepseek-ai--DeepSeek-V4-Flash",
            "h200",
            version,
            {"tp_size": 4, "page_size": 256, "max_total_tokens": size},
        )
        for size in (4096, 8192)
    )
    assert (small.fits, any("waits for ever" in reason for reason in small.reasons)) == (False, hangs)
    assert enough.fits


@pytest.mark.parametrize(
    ("before", "since", "rule"),
    [
        ("0.5.3", "0.5.4", "states_by_share"),
        ("0.5.4", "0.5.5", "fraction_resolved"),
        ("0.5.8", "0.5.9", "windows_by_bytes"),
        ("0.5.9", "0.5.10", "requests_by_tokens"),
        ("0.5.13", "0.5.14", "draft_counted"),
        ("0.5.17", "0.5.18", "index_shared"),
        ("0.5.19", "0.5.20", "window_floor"),
        ("0.5.20", "0.5.21", "compressed_by_page"),
        ("0.5.21", "0.5.22", "windows_by_requests"),
    ],
)
def test_a_rule_holds_since_its_release(before: str, since: str, rule: str) -> None:
    assert not getattr(allocation_of(before), rule)
    assert getattr(allocation_of(since), rule)
    assert not any(allocation_of("0.5.2"))


def test_every_rule_names_its_release_and_source() -> None:
    table = json.loads((REPOSITORY / "sglang_hydra" / "fit" / "allocation.json").read_text(encoding="utf-8"))
    for rule, row in table.items():
        assert row["source"].split(" ")[0] == row["since"], rule
        assert ".py" in row["source"], rule


def test_the_share_of_aiter_is_taken_off_once() -> None:
    arguments = {"mem_fraction_static": 0.8, "attention_backend": "aiter"}
    before, since = (served("Qwen--Qwen3-32B", "mi300x", version, arguments) for version in ("0.5.4", "0.5.5"))
    assert (before.fraction, since.fraction) == (pytest.approx(0.8 * 0.85), 0.8)  # 0.5.5 resolves 0.68 itself
    model = published("Qwen--Qwen3-32B")
    values = resolve({"model_path": "org/model", **arguments}, gpu=gpu("mi300x"), model=model, seed=1).values
    by_rules = fit(values, gpu("mi300x"), model, release="0.5.23", estimated=True)
    assert by_rules.fraction == pytest.approx(0.8 * 0.85)  # 0.5.2's rules do not resolve it


def test_an_amd_gpu_takes_a_little_more_with_the_weights() -> None:
    weights = [served("Qwen--Qwen3-0.6B", on, "0.5.17", {"tp_size": 1}).weights for on in ("h100", "mi355x")]
    totals = [found.total or 0 for found in weights]
    assert (totals[1] - totals[0]) / GIB == pytest.approx(0.03)
    assert sum(size or 0 for size in weights[1].parts.values()) == pytest.approx(totals[1])


def test_a_draft_is_counted_before_the_pool_is_sized() -> None:
    nextn = {"tp_size": 8, "speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
    nextn |= {"speculative_num_draft_tokens": 4}
    before, since = (cached("deepseek-ai--DeepSeek-V3", "h200", version, nextn) for version in ("0.5.13", "0.5.14"))
    assert before.tokens is not None
    assert since.tokens is not None
    assert since.tokens < 0.97 * before.tokens


@pytest.mark.parametrize("config", sorted(path.stem for path in CONFIGS.glob("*.json")))
def test_every_config_of_the_catalog_is_sized(config: str) -> None:
    if config == "sources" or config.endswith(".hf_quant_config"):
        pytest.skip("no model's config")
    found = served(config, "b300", "0.5.23", {"tp_size": 8})
    assert found.weights.total is not None, found.unknown
    assert found.kv is not None, found.unknown
