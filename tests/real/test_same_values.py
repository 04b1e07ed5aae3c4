"""The package's own argument class against our rules: the same command lines, all 210 values, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.rendering import render
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.facts.tiny import TINY_CONFIG, ensure_tiny
from sglang_hydra.rules.resolution import Resolution, resolve

ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
CPU = GpuFacts(name="cpu", vendor="none", device="cpu")

ACCEPTED: dict[str, dict[str, Any]] = {
    "nothing but a model": {},
    "every default given": {"tp_size": 1, "page_size": 1, "device": "cpu", "sampling_backend": "pytorch"},
    "torch attention": {"attention_backend": "torch_native", "grammar_backend": "none"},
    "FlashMLA pages": {"attention_backend": "flashmla"},
    "CUTLASS MLA pages for decoding": {"decode_attention_backend": "cutlass_mla", "page_size": 16},
    "Ascend pages": {"attention_backend": "ascend"},
    "dual chunk attention": {"attention_backend": "dual_chunk_flash_attn", "enable_mixed_chunk": True},
    "DP attention": {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True, "chunked_prefill_size": 4096},
    "DP attention with one rank": {"tp_size": 2, "enable_dp_attention": True},
    "DeepEP": {"tp_size": 4, "moe_a2a_backend": "deepep", "deepep_mode": "normal"},
    "expert balancing": {"tp_size": 2, "ep_size": 2, "enable_eplb": True, "init_expert_location": "random.json"},
    "expert metrics": {"enable_expert_distribution_metrics": True},
    "TRTLLM experts": {"moe_runner_backend": "flashinfer_trtllm", "quantization": "fp8"},
    "pipeline": {"pp_size": 2, "nnodes": 2, "node_rank": 1, "dist_init_addr": "10.0.0.1:5000"},
    "hierarchical cache on mooncake": {"enable_hierarchical_cache": True, "hicache_storage_backend": "mooncake"},
    "EAGLE": {"speculative_algorithm": "NEXTN", "speculative_draft_model_path": "draft", "enable_mixed_chunk": True},
    "EAGLE by hand": {
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": "draft",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 9,
        "max_running_requests": 7,
    },
    "prefill half": {"disaggregation_mode": "prefill", "disaggregation_decode_tp": 1},
    "decode half": {"disaggregation_mode": "decode", "disaggregation_transfer_backend": "nixl"},
    "adapters": {"lora_paths": ["one=/a", "/b"], "enable_lora": None, "max_loras_per_batch": 2},
    "old expert flag": {"enable_ep_moe": True, "tp_size": 2},
    "old DeepEP flag": {"enable_deepep_moe": True, "tp_size": 2},
    "shortest chunk": {"chunked_prefill_size": -1, "disable_radix_cache": True},
    "remote weights": {"load_format": "remote"},
    "metrics": {"enable_metrics": True, "bucket_time_to_first_token": [0.1, 1.0], "prompt_tokens_buckets": ["default"]},
    "names": {
        "served_model_name": "x",
        "tokenizer_path": "y",
        "tool_call_parser": "qwen25",
        "reasoning_parser": "qwen3",
    },
    "overrides": {"json_model_override_args": '{"max_position_embeddings": 64}', "context_length": 32},
    "layers of graph sizes": {"cuda_graph_bs": [1, 2, 4], "cuda_graph_max_bs": 4, "disable_cuda_graph_padding": True},
}

REFUSED: dict[str, dict[str, Any]] = {
    "DP ranks that do not divide": {"tp_size": 3, "dp_size": 2, "enable_dp_attention": True},
    "DP head without DP attention": {"enable_dp_lm_head": True},
    "balancing without experts to move": {"enable_eplb": True},
    "CUTLASS experts without their weights": {"moe_runner_backend": "flashinfer_cutlass"},
    "Blackwell attention": {"attention_backend": "trtllm_mha"},
    "nodes that do not divide": {"tp_size": 3, "nnodes": 2},
    "chunks that pages do not divide": {"chunked_prefill_size": 100, "page_size": 64},
    "adapters without targets": {"enable_lora": True},
    "buckets out of order": {"enable_metrics": True, "prompt_tokens_buckets": ["custom", "3", "1"]},
}


def intent_of(settings: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in settings.items() if value is not None}
    return {"model_path": str(ensure_tiny()), "random_seed": 42, **given}


def ours(settings: dict[str, Any]) -> Resolution:
    return resolve(intent_of(settings), gpu=CPU, model=ModelFacts(TINY_CONFIG), env=ENVIRONMENT)


@pytest.fixture(scope="module")
def theirs(sglang_python: str) -> dict[str, dict[str, Any]]:
    """What the package answers to each case, by name: one process for all."""
    cases = {**ACCEPTED, **REFUSED}
    lines = [render(intent_of(settings)) for settings in cases.values()]
    run = subprocess.run(
        [sglang_python, str(Path(__file__).with_name("ask_sglang.py"))],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **ENVIRONMENT},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return dict(zip(cases, map(json.loads, run.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", ACCEPTED)
def test_all_values_are_the_packages_own(name: str, theirs: dict[str, dict[str, Any]]) -> None:
    resolution = ours(ACCEPTED[name])
    assert [finding for finding in resolution.findings if finding.level == "error"] == []
    values = json.loads(json.dumps(dict(resolution.values), default=vars_of))
    assert len(values) == 210
    assert theirs[name].get("values") == values


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_package_refuses_is_refused_at_the_same_stage(name: str, theirs: dict[str, dict[str, Any]]) -> None:
    resolution = ours(REFUSED[name])
    first = next(finding for finding in resolution.findings if finding.level == "error")
    assert not resolution.ok
    assert theirs[name].get("refused") == first.stage, theirs[name]


def test_the_cases_fire_different_rules() -> None:
    fired = {frozenset(entry.rule for entry in ours(settings).ledger) for settings in ACCEPTED.values()}
    assert len(fired) >= 12
    assert len(frozenset.union(*fired)) >= 25


def vars_of(value: Any) -> Any:
    """An adapter, as ``dataclasses.asdict`` shows it."""
    return {"lora_name": value.lora_name, "lora_path": value.lora_path, "pinned": value.pinned}
