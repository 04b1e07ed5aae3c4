"""What the server meets only while it loads: kernels that a GPU or a model has not, flags on their way out."""

from __future__ import annotations

import re

import pytest

from tests.plans import planned, without_engines

FP4 = "model_path=nvidia/DeepSeek-R1-0528-FP4 tp_size=8"

# Overrides, and the check that speaks with a part of what it says and its level; no id: none of these speaks.
ROWS = [
    # quantization kernels
    (f"gpu=h200 {FP4}", "RUN001", "error", "modelopt_fp4 needs compute capability 10.0, and h200 has 9.0"),
    (f"gpu=b200 {FP4}", None, "", ""),
    ("gpu=t4 model_path=Qwen/Qwen3-8B-FP8", "RUN001", "error", "fp8 needs compute capability 8.0"),
    ("gpu=a100_80gb model_path=Qwen/Qwen3-8B-FP8", "RUN011", "error", "8.9 is needed, and a100_80gb has 8.0"),
    ("gpu=l40s model_path=Qwen/Qwen3-8B-FP8", None, "", ""),
    ("gpu=a100_80gb model=qwen3_8b quantization=fp8", None, "", ""),
    ("gpu=a100_80gb model=qwen3_30b_a3b quantization=fp8", "RUN011", "error", "FP8 experts"),
    ("gpu=a100_80gb model_path=zai-org/GLM-4.5-Air-FP8 tp_size=8", "RUN011", "error", "FP8 experts"),
    ("gpu=a10 model=qwen3_8b quantization=w8a8_fp8", "RUN001", "error", "w8a8_fp8 needs compute capability 8.9"),
    ("gpu=mi300x model=qwen3_8b quantization=fp8", None, "", ""),
    # latent attention
    ("gpu=h200 model=llama_3_1_8b attention_backend=flashmla", "RUN002", "error", "flashmla is for latent attention"),
    ("gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=flashmla", None, "", ""),
    ("gpu=b200 model=deepseek_v3 tp_size=8 attention_backend=trtllm_mha", "RUN002", "error", "cannot read a latent"),
    ("gpu=b200 model=qwen3_8b decode_attention_backend=cutlass_mla", "RUN002", "error", "cutlass_mla"),
    ("gpu=b200 model=deepseek_v3 tp_size=8 attention_backend=trtllm_mla", None, "", ""),
    ("gpu=h200 model=llama_3_1_8b attention_backend=dual_chunk_flash_attn", "RUN014", "error", "dual_chunk_attention"),
    ("gpu=h200 model=qwen3_8b decode_attention_backend=hybrid_linear_attn", "RUN020", "error", "gated delta nets"),
    ("gpu=h200 model=qwen3_next_80b_a3b tp_size=4 attention_backend=hybrid_linear_attn", None, "", ""),
    ("gpu=h100 model=qwen3_8b kv_cache_dtype=fp8_e5m2", "RUN009", "warning", "triton is used instead"),
    ("gpu=h100 model=mixtral_8x7b tp_size=8 kv_cache_dtype=fp8_e5m2", None, "", ""),
    # FlashAttention 3
    ("gpu=b200 model=gpt_oss attention_backend=fa3", "RUN003", "error", "fa3 has no kernels for"),
    ("gpu=a100_80gb model=qwen3_8b attention_backend=fa3", None, "", ""),
    ("gpu=a100_80gb model=deepseek_v3 tp_size=8 model.config.quantization_config=null attention_backend=fa3", "RUN003",
     "error", "8.0"),
    ("gpu=h100 model=qwen3_8b prefill_attention_backend=fa3", None, "", ""),
    # drafts
    ("gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE", "RUN004", "warning", "EAGLE has no draft model"),
    ("gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE speculative_draft_model_path=x/y", None, "", ""),
    ("gpu=h200 model=deepseek_v3 tp_size=8 speculative_algorithm=EAGLE", None, "", ""),
    ("gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE3 "
     "speculative_draft_model_path=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "RUN006", "warning", "allows 2048 tokens"),
    ("gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE3 context_length=2048 "
     "speculative_draft_model_path=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", None, "", ""),
    ("gpu=h200 model=deepseek_v3 tp_size=8 speculative_algorithm=EAGLE "
     "speculative_draft_model_path=lmsys/DeepSeek-V3-NextN", None, "", ""),
    ("gpu=h200 model=deepseek_v3 tp_size=8 speculative_algorithm=EAGLE3 speculative_draft_model_path=x/y", "RUN012",
     "error", "does not feed an EAGLE-3 draft"),
    ("gpu=h200 model=gpt_oss speculative_algorithm=EAGLE3 speculative_draft_model_path=x/y", None, "", ""),
    # latent attention and linear attention on the right GPU and backend
    ("gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=cutlass_mla", "RUN008", "warning", "Blackwell"),
    ("gpu=b200 model=deepseek_v3 tp_size=8 attention_backend=flashmla", "RUN008", "warning", "built for Hopper"),
    ("gpu=b200 model=deepseek_v3 tp_size=8 decode_attention_backend=cutlass_mla", None, "", ""),
    ("gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=torch_native", "RUN017", "error", "torch_native"),
    ("gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=triton", None, "", ""),
    ("gpu=b200 model=qwen3_next_80b_a3b tp_size=2", "RUN007", "warning", "FlashAttention 3"),
    ("gpu=mi300x model=qwen3_next_80b_a3b tp_size=2", "RUN007", "warning", "mi300x"),
    ("gpu=h200 model=qwen3_next_80b_a3b tp_size=2", None, "", ""),
    # changed or refused when the backend is made
    ("gpu=h100 model=qwen3_8b attention_backend=fa3 kv_cache_dtype=fp8_e5m2", "RUN009", "warning", "triton is used"),
    ("gpu=b200 model=qwen3_8b attention_backend=fa3 kv_cache_dtype=fp8_e5m2", "RUN009", "warning", "triton is used"),
    ("gpu=h100 model=qwen3_8b attention_backend=fa3 kv_cache_dtype=fp8_e4m3", None, "", ""),
    ("gpu=h100 model=qwen3_8b model.config.architectures=[MllamaForConditionalGeneration] attention_backend=triton",
     "RUN013", "error", "no cross attention"),
    ("gpu=h100 model=qwen3_8b model.config.architectures=[MllamaForConditionalGeneration]", None, "", ""),
    ("gpu=h100 model=qwen2_5_7b +model.config.dual_chunk_attention_config={chunk_size:262144} attention_backend=fa3",
     "RUN014", "error", "two chunks"),
    ("gpu=h100 model=qwen2_5_7b +model.config.dual_chunk_attention_config={chunk_size:262144}", None, "", ""),
    ("gpu=h200 model=deepseek_v3 tp_size=8 dp_size=2 enable_dp_attention=true cuda_graph_max_bs=2", "RUN019", "error",
     "multiples of 4"),
    ("gpu=h200 model=deepseek_v3 tp_size=8 dp_size=2 enable_dp_attention=true cuda_graph_max_bs=4", None, "", ""),
    # shapes
    ("gpu=h200 model_path=Qwen/Qwen3-235B-A22B-FP8 tp_size=8", "RUN010", "error", "192 outputs on each GPU"),
    ("gpu=h200 model_path=Qwen/Qwen3-235B-A22B-FP8 tp_size=8 ep_size=8", None, "", ""),
    ("gpu=h200 model_path=Qwen/Qwen3-235B-A22B-FP8 tp_size=4", None, "", ""),
    ("gpu=h100 model_path=Qwen/Qwen2.5-VL-72B-Instruct-AWQ tp_size=8", "RUN010", "error", "3696 inputs on each GPU"),
    ("gpu=h100 model_path=Qwen/Qwen2.5-VL-72B-Instruct-AWQ tp_size=1", None, "", ""),
    ("gpu=h200 model=deepseek_v3 tp_size=16 nnodes=2", None, "", ""),
    ("gpu=h100 model=qwen3_30b_a3b tp_size=4 ep_size=3", "RUN018", "error", "ep_size=3 does not divide tp_size=4"),
    ("gpu=h100 model=qwen3_8b tp_size=2 ep_size=4", "RUN018", "error", "ep_size=4 does not divide tp_size=2"),
    ("gpu=h100 model=qwen3_30b_a3b model.config.num_experts=126 tp_size=4 ep_size=4", "RUN018", "error",
     "126 experts do not divide"),
    ("gpu=h100 model=qwen3_30b_a3b model.config.num_experts=126 tp_size=4 ep_size=4 ep_num_redundant_experts=2", None,
     "", ""),
    ("gpu=h100 model=mixtral_8x7b model.config.num_local_experts=6 tp_size=4 ep_size=4 ep_num_redundant_experts=2",
     "RUN018", "error", "6 experts do not divide"),  # its class has no redundant experts
    ("gpu=h100 model=qwen3_30b_a3b tp_size=4 ep_size=4", None, "", ""),
    # formats and classes of later releases
    ("gpu=b200 model=qwen3_8b +model.config.quantization_config={quant_method:compressed-tensors,"
     "config_groups:{g:{targets:[Linear],weights:{num_bits:4,type:float,strategy:tensor_group,group_size:16}}}}",
     "RUN016", "error", "4 bit floats"),
    ("gpu=h100 model=qwen3_8b +model.config.quantization_config={quant_method:compressed-tensors,"
     "config_groups:{g:{targets:[Linear],weights:{num_bits:4,type:int,strategy:group,group_size:128}}}}",
     "RUN016", "warning", "vLLM's kernels"),
    ("gpu=h100 model=qwen3_8b +model.config.quantization_config={quant_method:compressed-tensors,"
     "config_groups:{g:{targets:[Linear],weights:{num_bits:8,type:float,strategy:channel}}}}", None, "", ""),
    ("gpu=h100 model=qwen3_8b model.config.architectures=[Qwen3_5ForCausalLM]", "RUN015", "warning", "has no class"),
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


def test_a_slip_of_the_finger_in_a_size_is_answered_like_any_other() -> None:
    """Offers are looked for among numbers of ranks that exist, not up to what was typed."""
    found = planned("gpu=h200", "model=deepseek_v3", "tp_size=99999999999").findings
    assert {"ARG020", "RUN010", "RUN018"} <= {finding.id for finding in found}
