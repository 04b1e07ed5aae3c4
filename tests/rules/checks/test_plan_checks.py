"""What SGLang accepts and the server then fails on: each check speaks where it should and is silent elsewhere."""

from __future__ import annotations

import json
import re
import textwrap

import pytest

from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.checks.model_config import derived_context_length
from sglang_hydra.rules.rule import Rule
from tests.plans import planned, without_engines

OVERRIDES = "json_model_override_args="
STORED = "model.config.quantization_config"
LONGER = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
CI = {"SGLANG_IS_IN_CI": "true"}

# Overrides, the environment, and the check that speaks with a part of what it says; no id: none of ours speaks.
ROWS_OF_PLANS = [
    # context length
    ("gpu=h200 model=qwen3_8b context_length=40960", {}, None, ""),
    ("gpu=h200 model=qwen3_8b context_length=40961", {}, "CFG001", "above the model's 40960 tokens"),
    ("gpu=h200 model=qwen3_8b context_length=40961", LONGER, "CFG001", "allows it"),
    ("gpu=h200 model=qwen3_8b context_length=40961", CI, "CFG001", "SGLANG_IS_IN_CI allows it"),
    (f"gpu=h200 model=qwen3_8b context_length=100 {OVERRIDES}{{\"max_position_embeddings\":64}}", {}, "CFG001", "64"),
    ("gpu=h200 model=unset model_path=/none context_length=99999999", {}, None, ""),
    ("gpu=h200 model=llama_3_1_8b context_length=131072", {}, None, ""),
    ("gpu=h200 model=gemma_3_27b context_length=131072", {}, None, ""),
    # quantization
    ("gpu=h200 model=deepseek_v3 tp_size=8 quantization=awq", {}, "CFG002", "stored as 'fp8'"),
    ("gpu=h200 model=deepseek_v3 tp_size=8 quantization=fp8", {}, None, ""),
    ("gpu=h200 model=qwen3_8b quantization=fp8", {}, None, ""),
    (f"gpu=h200 model=qwen3_8b quantization=awq_marlin {STORED}={{quant_method: AWQ, bits: 4}}", {}, None, ""),
    (f"gpu=h200 model=qwen3_8b quantization=awq {STORED}={{quant_method: gptq}}", {}, "CFG002", "gptq_marlin"),
    ("gpu=h200 model=qwen3_8b quantization=awq model.config.quantization_config={bits: 4}", {}, None, ""),
    ("gpu=h200 model=qwen3_8b quantization=awq model.config.compression_config={quant_method: x}", {}, "CFG002", "'x'"),
    # quantization and the kind of GPU
    ("gpu=h200 model=gpt_oss", {}, None, ""),
    ("gpu=mi300x model=gpt_oss", {}, "CFG006", "not on mi300x (ROCm)"),
    ("gpu=mi355x model=gpt_oss", {}, None, ""),
    ("gpu=cpu model=gpt_oss", {}, "CFG006", "not on cpu (cpu)"),
    ("gpu=mi300x model=qwen3_8b quantization=awq_marlin", {}, "CFG006", "no awq_marlin on ROCm"),
    ("gpu=mi300x model=qwen3_8b quantization=fp8", {}, None, ""),
    ("gpu=mi300x model=qwen3_8b model.config.quantization_config={quant_method: modelopt}", {}, None, ""),
    # heads
    ("gpu=h200 model=qwen3_8b tp_size=8", {}, None, ""),
    ("gpu=h200 model=qwen2_5_vl_7b tp_size=8", {}, "CFG004", "28 attention heads do not divide by 8 ranks"),
    ("gpu=h200 model=qwen2_5_vl_7b tp_size=4", {}, None, ""),
    ("gpu=h200 model=qwen2_5_vl_7b tp_size=8 dp_size=2 enable_dp_attention=true", {}, None, ""),
    ("gpu=h200 model=qwen3_8b tp_size=6", {}, "CFG004", "32 attention heads"),
    ("gpu=h200 model=qwen3_8b tp_size=8 model.config.num_key_value_heads=3", {}, "CFG004", "3 KV heads"),
    ("gpu=h200 model=unset model_path=/none tp_size=7", {}, None, ""),
    # memory
    ("gpu=h200 model=qwen3_8b mem_fraction_static=0.9", {}, None, ""),
    ("gpu=h200 model=qwen3_8b mem_fraction_static=85", {}, "CFG005", "85 is not between 0 and 1"),
    ("gpu=h200 model=qwen3_8b mem_fraction_static=nan", {}, "CFG005", "nan"),
    # GPUs
    ("gpu=h200 model=qwen3_8b tp_size=16", {}, "GPU001", "16 ranks need 16 GPUs on one node; h200 has 8"),
    ("gpu=h200 model=qwen3_8b tp_size=16 nnodes=2", {}, None, ""),
    ("gpu=h200 model=qwen3_8b tp_size=4 dp_size=4", {}, "GPU001", "16 ranks"),
    ("gpu=h200 model=qwen3_8b tp_size=8 dp_size=8 enable_dp_attention=true", {}, None, ""),
    ("gpu=h200 model=qwen3_8b tp_size=4 base_gpu_id=4", {}, None, ""),
    ("gpu=h200 model=qwen3_8b tp_size=4 base_gpu_id=5", {}, "GPU001", "up to number 8"),
    ("gpu=h200 model=qwen3_8b tp_size=4 gpu_id_step=2", {}, None, ""),
    ("gpu=h200 model=qwen3_8b tp_size=4 gpu_id_step=3", {}, "GPU001", "up to number 9"),
    ("gpu=h200 model=qwen3_8b gpu.count=0", {}, "GPU001", "1 rank needs 1 GPU on one node; h200 has 0"),
    ("gpu=cpu model=qwen3_8b tp_size=64 model.config.num_attention_heads=64", {}, None, ""),
    # sizes and ports
    ("gpu=h200 model=qwen3_8b tp_size=0", {}, "ARG020", "tp_size=0 must lie between 1 and"),
    ("gpu=h200 model=qwen3_8b max_running_requests=0 max_total_tokens=-1", {}, "ARG020", "max_running_requests=0 must"),
    ("gpu=h200 model=qwen3_8b max_running_requests=1", {}, None, ""),
    ("gpu=h200 model=qwen3_8b cuda_graph_bs=[1,99999999]", {}, "ARG020", "cuda_graph_bs=[1, 99999999] must lie"),
    ("gpu=h200 model=qwen3_8b chunked_prefill_size=99999999999", {}, "ARG020", "between -1 and 2147483648"),
    ("gpu=h200 model=qwen3_8b chunked_prefill_size=-1", {}, None, ""),
    ("gpu=h200 model=qwen3_8b random_seed=99999999999999999999", {}, "ARG020", "random_seed=99999999999999999999"),
    ("gpu=h200 model=qwen3_8b port=65535", {}, None, ""),
    ("gpu=h200 model=qwen3_8b port=0", {}, None, ""),
    ("gpu=h200 model=qwen3_8b port=65536 nccl_port=0", {}, "ARG021", "port=65536, nccl_port=0"),
]  # fmt: skip
AREAS = ("CFG", "GPU", "ARG")


@pytest.fixture(autouse=True)
def no_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@pytest.mark.parametrize(("overrides", "env", "id", "said"), ROWS_OF_PLANS, ids=lambda value: str(value)[:70])
def test_a_plan_says_what_its_row_says(overrides: str, env: dict[str, str], id: str | None, said: str) -> None:
    words = re.split(r" (?=\S+=)", overrides)
    found = [item for item in planned(*words, env=env).findings if item.id.startswith(AREAS)]
    assert [item.id for item in found] == ([id] if id else [])
    for item in found:
        assert said in item.message
        assert item.fields
        assert item.ours
        assert (item.level == "warning") == bool(env)


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"max_position_embeddings": 8192, "seq_length": 2048}, 2048),
        ({"max_position_embeddings": 8192, "rope_scaling": {"factor": 4.0, "type": "linear"}}, 32768),
        ({"max_position_embeddings": 8192, "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}}, 8192),
        ({"max_position_embeddings": 8192, "rope_scaling": {"factor": 4, "original_max_position_embeddings": 1}}, 8192),
        ({"max_position_embeddings": 8192, "rope_scaling": None}, 8192),
        ({}, None),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_the_context_length_of_a_config(config: dict[str, object], length: int | None) -> None:
    assert derived_context_length(config) == length


def test_a_nested_language_model_is_the_one_that_counts() -> None:
    nested = "model.config={text_config: {max_position_embeddings: 64}, max_position_embeddings: 9999}"
    words = ["gpu=h200", "model=unset", "model_path=/x", "context_length=100", f"++{nested}"]
    assert "CFG001" in [item.id for item in planned(*words).findings]


@pytest.mark.parametrize("rule", PLAN_CHECKS, ids=lambda rule: rule.id)
def test_every_check_of_ours_has_its_page(rule: Rule) -> None:
    page = textwrap.dedent(rule.page).strip()
    assert re.findall(r"^(\w+): ", page, re.MULTILINE) == ["What", "Why", "Upstream", "Example"]
    assert rule.stage == "plan"


def test_the_ids_of_our_checks_are_unique() -> None:
    assert len({rule.id for rule in PLAN_CHECKS}) == len(PLAN_CHECKS)
