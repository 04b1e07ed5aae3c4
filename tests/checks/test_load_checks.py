"""What the server meets only while it loads: kernels that a GPU or a model has not, flags on their way out."""

from __future__ import annotations

import re

import pytest

from tests.planning import planned, without_engines

FP4 = "model_path=nvidia/DeepSeek-R1-0528-FP4 tp_size=8"

# Overrides, and the check that speaks with a part of what it says and its level; no id: none of these speaks.
ROWS = [
    # quantization kernels
    (f"gpu=h200 {FP4}", "RUN001", "error", "modelopt_fp4 needs compute capability 10.0, and h200 has 9.0"),
    (f"gpu=b200 {FP4}", None, "", ""),
    ("gpu=t4 model_path=Qwen/Qwen3-8B-FP8", "RUN001", "error", "fp8 needs compute capability 8.0"),
    ("gpu=a100_80gb model_path=Qwen/Qwen3-8B-FP8", None, "", ""),
    ("gpu=a10 model=qwen3_8b quantization=w8a8_fp8", "RUN001", "error", "w8a8_fp8 needs compute capability 8.9"),
    ("gpu=mi300x model=qwen3_8b quantization=fp8", None, "", ""),
    # latent attention
    ("gpu=h200 model=llama_3_1_8b attention_backend=flashmla", "RUN002", "error", "flashmla is for latent attention"),
    ("gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=flashmla", None, "", ""),
    ("gpu=b200 model=deepseek_v3 tp_size=8 attention_backend=trtllm_mha", "RUN002", "error", "cannot read a latent"),
    ("gpu=b200 model=qwen3_8b decode_attention_backend=cutlass_mla", "RUN002", "error", "cutlass_mla"),
    ("gpu=b200 model=deepseek_v3 tp_size=8 attention_backend=trtllm_mla", None, "", ""),
    # FlashAttention 3
    ("gpu=b200 model=gpt_oss attention_backend=fa3", "RUN003", "error", "fa3 has no kernels for"),
    ("gpu=a100_80gb model=qwen3_8b attention_backend=fa3", None, "", ""),
    ("gpu=a100_80gb model=deepseek_v3 tp_size=8 attention_backend=fa3", "RUN003", "error", "8.0"),
    ("gpu=h100 model=qwen3_8b prefill_attention_backend=fa3", None, "", ""),
    # drafts
    ("gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE", "RUN004", "warning", "EAGLE has no draft model"),
    ("gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE speculative_draft_model_path=x/y", None, "", ""),
    ("gpu=h200 model=deepseek_v3 tp_size=8 speculative_algorithm=EAGLE", None, "", ""),
    # old GPUs
    ("gpu=t4 model=qwen3_0_6b gpu.compute_capability='7.0'", "RUN005", "error", "7.5 is the lowest"),
    ("gpu=t4 model=qwen3_0_6b", None, "", ""),
    # deprecated flags
    ("gpu=h200 model=deepseek_v3 tp_size=8 enable_ep_moe=true", "DEP004", "warning", "enable_ep_moe is deprecated"),
    ("gpu=h200 model=deepseek_v3 tp_size=8 ep_size=8", None, "", ""),
    # the HTTP server
    ("gpu=h200 model=qwen3_8b api_key=k tokenizer_worker_num=2", "API001", "error", "does not work with an api_key"),
    ("gpu=h200 model=qwen3_8b api_key=k", None, "", ""),
    ("gpu=h200 model=qwen3_8b tokenizer_worker_num=2", None, "", ""),
]  # fmt: skip
AREAS = ("RUN", "DEP004", "API")


@pytest.fixture(autouse=True)
def no_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@pytest.mark.parametrize(("overrides", "id", "level", "said"), ROWS, ids=lambda value: str(value)[:70])
def test_a_plan_says_what_its_row_says(overrides: str, id: str | None, level: str, said: str) -> None:
    words = re.split(r" (?=\S+=)", overrides)
    found = [item for item in planned(*words, env={"HF_HUB_OFFLINE": "1"}).findings if item.id.startswith(AREAS)]
    assert [(item.id, item.level) for item in found] == ([(id, level)] if id else [])
    for item in found:
        assert said in item.message
        assert item.fields
        assert item.ours
