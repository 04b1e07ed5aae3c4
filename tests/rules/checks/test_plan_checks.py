"""Checks of the model's config, of sizes and ports, and of the number of GPUs."""

from __future__ import annotations

import json
import re
import textwrap

import pytest

from sglang_hydra.rules.checks import model_config, nodes, ranges
from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.checks.model_config import derived_context_length
from sglang_hydra.rules.rule import Rule
from tests.plans import planned, without_engines
from tests.rules.cases import Row, refused, unchanged, warned

OVERRIDES = "json_model_override_args="
STORED = "model.config.quantization_config"
LONGER = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
CI = {"SGLANG_IS_IN_CI": "true"}

ROWS = (
    # context length
    unchanged(model_config.check_context_length, overrides="gpu=h200 model=qwen3_8b context_length=40960"),
    refused(
        model_config.check_context_length,
        "above the model's 40960 tokens",
        overrides="gpu=h200 model=qwen3_8b context_length=40961",
    ),
    warned(
        model_config.check_context_length,
        "allows it",
        env=LONGER,
        overrides="gpu=h200 model=qwen3_8b context_length=40961",
    ),
    warned(
        model_config.check_context_length,
        "SGLANG_IS_IN_CI allows it",
        env=CI,
        overrides="gpu=h200 model=qwen3_8b context_length=40961",
    ),
    refused(
        model_config.check_context_length,
        "64",
        overrides=f'gpu=h200 model=qwen3_8b context_length=100 {OVERRIDES}{{"max_position_embeddings":64}}',
    ),
    unchanged(
        model_config.check_context_length, overrides="gpu=h200 model=unset model_path=/none context_length=99999999"
    ),
    unchanged(model_config.check_context_length, overrides="gpu=h200 model=llama_3_1_8b context_length=131072"),
    unchanged(model_config.check_context_length, overrides="gpu=h200 model=gemma_3_27b context_length=131072"),
    # quantization
    refused(
        model_config.check_quantization,
        "stored as 'fp8'",
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 quantization=awq",
    ),
    unchanged(model_config.check_quantization, overrides="gpu=h200 model=deepseek_v3 tp_size=8 quantization=fp8"),
    unchanged(model_config.check_quantization, overrides="gpu=h200 model=qwen3_8b quantization=fp8"),
    unchanged(
        model_config.check_quantization,
        overrides=f"gpu=h200 model=qwen3_8b quantization=awq_marlin {STORED}={{quant_method: AWQ, bits: 4}}",
    ),
    refused(
        model_config.check_quantization,
        "gptq_marlin",
        overrides=f"gpu=h200 model=qwen3_8b quantization=awq {STORED}={{quant_method: gptq}}",
    ),
    unchanged(
        model_config.check_quantization,
        overrides="gpu=h200 model=qwen3_8b quantization=awq model.config.quantization_config={bits: 4}",
    ),
    refused(
        model_config.check_quantization,
        "'x'",
        overrides="gpu=h200 model=qwen3_8b quantization=awq model.config.compression_config={quant_method: x}",
    ),
    # quantization and the kind of GPU
    unchanged(model_config.check_quantization_runs_here, overrides="gpu=h200 model=gpt_oss"),
    refused(model_config.check_quantization_runs_here, "not on mi300x (ROCm)", overrides="gpu=mi300x model=gpt_oss"),
    unchanged(model_config.check_quantization_runs_here, overrides="gpu=mi355x model=gpt_oss"),
    refused(model_config.check_quantization_runs_here, "not on cpu (cpu)", overrides="gpu=cpu model=gpt_oss"),
    refused(
        model_config.check_quantization_runs_here,
        "no awq_marlin on ROCm",
        overrides="gpu=mi300x model=qwen3_8b quantization=awq_marlin",
    ),
    unchanged(model_config.check_quantization_runs_here, overrides="gpu=mi300x model=qwen3_8b quantization=fp8"),
    unchanged(
        model_config.check_quantization_runs_here,
        overrides="gpu=mi300x model=qwen3_8b model.config.quantization_config={quant_method: modelopt}",
    ),
    refused(
        model_config.check_quantization_runs_here,
        "gfx90a and gfx942 (MI300) only, by Petit, not on mi355x",
        overrides="gpu=mi355x model=qwen3_8b model.config.quantization_config={quant_method: modelopt}",
    ),
    refused(
        model_config.check_quantization_runs_here,
        "no kernels for experts",
        overrides="gpu=mi300x model=deepseek_v3 model.config.quantization_config={quant_method: modelopt}",
    ),
    # types
    refused(model_config.check_dtype, "dtype='fp16' is not one of auto, half", dtype="fp16"),
    unchanged(model_config.check_dtype, dtype="FLOAT16"),
    # heads
    unchanged(model_config.check_heads, overrides="gpu=h200 model=qwen3_8b tp_size=8"),
    refused(
        model_config.check_heads,
        "28 attention heads do not divide by 8 ranks",
        overrides="gpu=h200 model=qwen2_5_vl_7b tp_size=8",
    ),
    unchanged(model_config.check_heads, overrides="gpu=h200 model=qwen2_5_vl_7b tp_size=4"),
    unchanged(
        model_config.check_heads, overrides="gpu=h200 model=qwen2_5_vl_7b tp_size=8 dp_size=2 enable_dp_attention=true"
    ),
    refused(model_config.check_heads, "32 attention heads", overrides="gpu=h200 model=qwen3_8b tp_size=6"),
    refused(
        model_config.check_heads,
        "3 KV heads",
        overrides="gpu=h200 model=qwen3_8b tp_size=8 model.config.num_key_value_heads=3",
    ),
    unchanged(model_config.check_heads, overrides="gpu=h200 model=unset model_path=/none tp_size=7"),
    # memory
    unchanged(model_config.check_mem_fraction, overrides="gpu=h200 model=qwen3_8b mem_fraction_static=0.9"),
    refused(
        model_config.check_mem_fraction,
        "85 is not between 0 and 1",
        overrides="gpu=h200 model=qwen3_8b mem_fraction_static=85",
    ),
    refused(model_config.check_mem_fraction, "nan", overrides="gpu=h200 model=qwen3_8b mem_fraction_static=nan"),
    # GPUs
    refused(
        nodes.check_gpu_count,
        "16 ranks need 16 GPUs on one node; h200 has 8",
        overrides="gpu=h200 model=qwen3_8b tp_size=16",
    ),
    unchanged(nodes.check_gpu_count, overrides="gpu=h200 model=qwen3_8b tp_size=16 nnodes=2"),
    refused(nodes.check_gpu_count, "16 ranks", overrides="gpu=h200 model=qwen3_8b tp_size=4 dp_size=4"),
    unchanged(nodes.check_gpu_count, overrides="gpu=h200 model=qwen3_8b tp_size=8 dp_size=8 enable_dp_attention=true"),
    unchanged(nodes.check_gpu_count, overrides="gpu=h200 model=qwen3_8b tp_size=4 base_gpu_id=4"),
    refused(nodes.check_gpu_count, "up to number 8", overrides="gpu=h200 model=qwen3_8b tp_size=4 base_gpu_id=5"),
    unchanged(nodes.check_gpu_count, overrides="gpu=h200 model=qwen3_8b tp_size=4 gpu_id_step=2"),
    refused(nodes.check_gpu_count, "up to number 9", overrides="gpu=h200 model=qwen3_8b tp_size=4 gpu_id_step=3"),
    refused(
        nodes.check_gpu_count,
        "1 rank needs 1 GPU on one node; the node has 0 x h200",
        overrides="gpu=h200 model=qwen3_8b gpu.count=0",
    ),
    unchanged(nodes.check_gpu_count, overrides="gpu=cpu model=qwen3_8b tp_size=64 model.config.num_attention_heads=64"),
    # names
    refused(ranges.check_model_path, "model_path='' names no model", overrides="gpu=h200 model=unset model_path=''"),
    refused(ranges.check_model_path, "'???'", overrides="gpu=h200 model=qwen3_8b model_path='???'"),
    unchanged(ranges.check_model_path, overrides="gpu=h200 model=unset model_path=/none"),
    # sizes and ports
    refused(ranges.check_sizes, "tp_size=0 must lie between 1 and", overrides="gpu=h200 model=qwen3_8b tp_size=0"),
    refused(
        ranges.check_sizes,
        "max_running_requests=0 must",
        overrides="gpu=h200 model=qwen3_8b max_running_requests=0 max_total_tokens=-1",
    ),
    unchanged(ranges.check_sizes, overrides="gpu=h200 model=qwen3_8b max_running_requests=1"),
    refused(
        ranges.check_sizes,
        "cuda_graph_bs=[1, 99999999] must lie",
        overrides="gpu=h200 model=qwen3_8b cuda_graph_bs=[1,99999999]",
    ),
    refused(
        ranges.check_sizes,
        "between -1 and 2147483648",
        overrides="gpu=h200 model=qwen3_8b chunked_prefill_size=99999999999",
    ),
    unchanged(ranges.check_sizes, overrides="gpu=h200 model=qwen3_8b chunked_prefill_size=-1"),
    refused(
        ranges.check_sizes,
        "random_seed=99999999999999999999",
        overrides="gpu=h200 model=qwen3_8b random_seed=99999999999999999999",
    ),
    unchanged(ranges.check_host, overrides="gpu=h200 model=qwen3_8b host=0.0.0.0"),
    unchanged(ranges.check_host, overrides="gpu=h200 model=qwen3_8b host=::1"),
    refused(ranges.check_words, "device=gpu is no device of torch", overrides="gpu=h200 model=qwen3_8b device=gpu"),
    refused(ranges.check_words, "verbose is not one of", overrides="gpu=h200 model=qwen3_8b log_level=verbose"),
    refused(ranges.check_words, "log_level_http=warn is", overrides="gpu=h200 model=qwen3_8b log_level_http=warn"),
    refused(ranges.check_words, "log_level=trace is", overrides="gpu=h200 model=qwen3_8b log_level=trace"),
    refused(ranges.check_words, "log_level=warn is not one of", overrides="gpu=h200 model=qwen3_8b log_level=warn"),
    unchanged(ranges.check_words, overrides="gpu=h200 model=qwen3_8b log_level=warn log_level_http=info"),
    unchanged(ranges.check_words, overrides="gpu=h200 model=qwen3_8b log_level=INFO log_level_http=trace device=cuda"),
    refused(ranges.check_host, "host='' names no interface", overrides="gpu=h200 model=qwen3_8b host="),
    refused(ranges.check_host, "names no interface", overrides="gpu=h200 model=qwen3_8b host=http://0.0.0.0"),
    unchanged(ranges.check_ports, overrides="gpu=h200 model=qwen3_8b port=65535"),
    unchanged(ranges.check_ports, overrides="gpu=h200 model=qwen3_8b port=0"),
    refused(ranges.check_ports, "port=65536, nccl_port=0", overrides="gpu=h200 model=qwen3_8b port=65536 nccl_port=0"),
)
AREAS = ("CFG", "GPU", "ARG")


@pytest.fixture(autouse=True)
def no_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check(AREAS)


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
