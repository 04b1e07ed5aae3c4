"""What the server meets only while it loads: kernels that a GPU or a model has not, flags on their way out."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import api, attention_at_load, ineffective, kernels_at_load, weights_at_load
from tests.plans import planned, without_engines
from tests.rules.cases import Row, refused, unchanged, warned

FP4 = "model_path=nvidia/DeepSeek-R1-0528-FP4 tp_size=8"

ROWS = (
    # quantization kernels
    refused(
        kernels_at_load.check_quantization_kernels,
        "modelopt_fp4 needs compute capability 10.0, and h200 has 9.0",
        overrides=f"gpu=h200 engine.version=0.5.2 {FP4}",
    ),
    unchanged(kernels_at_load.check_quantization_kernels, overrides=f"gpu=b200 {FP4}"),
    refused(
        kernels_at_load.check_quantization_kernels,
        "modelopt_mixed needs compute capability 10.0, and h200 has 9.0",
        overrides="gpu=h200 model=nemotron_3_super_nvfp4 tp_size=8 engine.version=0.5.12",
    ),
    unchanged(
        kernels_at_load.check_quantization_kernels,
        overrides="gpu=h200 model=nemotron_3_super_nvfp4 tp_size=8 engine.version=0.5.13",
    ),
    refused(
        kernels_at_load.check_quantization_kernels,
        "fp8 needs compute capability 8.0",
        overrides="gpu=t4 model_path=Qwen/Qwen3-8B-FP8",
    ),
    unchanged(weights_at_load.check_fp8_on_ampere, overrides="gpu=a100_80gb model_path=Qwen/Qwen3-8B-FP8"),
    unchanged(weights_at_load.check_fp8_on_ampere, overrides="gpu=l40s model=qwen3_30b_a3b quantization=fp8"),
    unchanged(weights_at_load.check_fp8_on_ampere, overrides="gpu=a100_80gb model=qwen3_8b quantization=fp8"),
    refused(
        weights_at_load.check_fp8_on_ampere,
        "FP8 experts: compute capability 8.9 is needed, and a100_80gb has 8.0",
        overrides="gpu=a100_80gb model=qwen3_30b_a3b quantization=fp8",
    ),
    refused(
        weights_at_load.check_fp8_on_ampere,
        "FP8 experts",
        overrides="gpu=a100_80gb model_path=zai-org/GLM-4.5-Air-FP8 tp_size=8",
    ),
    refused(
        kernels_at_load.check_quantization_kernels,
        "w8a8_fp8 needs compute capability 8.9",
        overrides="gpu=a10 model=qwen3_8b quantization=w8a8_fp8",
    ),
    unchanged(kernels_at_load.check_quantization_kernels, overrides="gpu=mi300x model=qwen3_8b quantization=fp8"),
    # latent attention
    refused(
        kernels_at_load.check_latent_attention,
        "flashmla is for latent attention",
        overrides="gpu=h200 model=llama_3_1_8b attention_backend=flashmla",
    ),
    unchanged(
        kernels_at_load.check_latent_attention,
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=flashmla",
    ),
    refused(
        kernels_at_load.check_latent_attention,
        "cannot read a latent",
        overrides="gpu=b200 model=deepseek_v3 tp_size=8 attention_backend=trtllm_mha",
    ),
    refused(
        kernels_at_load.check_latent_attention,
        "cutlass_mla",
        overrides="gpu=b200 model=qwen3_8b decode_attention_backend=cutlass_mla",
    ),
    unchanged(
        kernels_at_load.check_latent_attention,
        overrides="gpu=b200 model=deepseek_v3 tp_size=8 attention_backend=trtllm_mla",
    ),
    refused(
        attention_at_load.check_dual_chunks,
        "dual_chunk_attention",
        overrides="gpu=h200 model=llama_3_1_8b attention_backend=dual_chunk_flash_attn",
    ),
    refused(
        attention_at_load.check_delta_net_backend,
        "gated delta nets",
        overrides="gpu=h200 model=qwen3_8b decode_attention_backend=hybrid_linear_attn",
    ),
    unchanged(
        attention_at_load.check_delta_net_backend,
        overrides="gpu=h200 model=qwen3_next_80b_a3b tp_size=4 attention_backend=hybrid_linear_attn",
    ),
    warned(
        attention_at_load.check_fa3_cache_type,
        "triton is used instead",
        overrides="gpu=h100 model=qwen3_8b kv_cache_dtype=fp8_e5m2",
    ),
    unchanged(
        attention_at_load.check_fa3_cache_type,
        overrides="gpu=h100 model=mixtral_8x7b tp_size=8 kv_cache_dtype=fp8_e5m2",
    ),
    refused(
        attention_at_load.check_sparse_attention_kernels,
        "built for compute capability 9 and 10, and rtx_pro_6000 has 12.0",
        overrides="gpu=rtx_pro_6000 model=glm_5_2_nvfp4 tp_size=8 quantization=modelopt_fp4 engine.version=0.5.16",
    ),
    unchanged(
        attention_at_load.check_sparse_attention_kernels,
        overrides="gpu=b200 model=glm_5_fp8 tp_size=8 engine.version=0.5.16",
    ),
    unchanged(
        attention_at_load.check_sparse_attention_kernels,
        overrides="gpu=mi355x model=deepseek_v3_2 tp_size=8 engine.version=0.5.16",
    ),
    unchanged(attention_at_load.check_sparse_attention_kernels, overrides="gpu=a100_80gb model=qwen3_8b"),
    refused(
        attention_at_load.check_sparse_attention_kernels,
        "built for compute capability 9, 10 and 12, and a100_80gb has 8.0",
        overrides="gpu=a100_80gb model=deepseek_v4_flash tp_size=8 engine.version=0.5.23",
    ),
    unchanged(
        attention_at_load.check_sparse_attention_kernels,
        overrides="gpu=rtx_pro_6000 model=deepseek_v4_flash tp_size=8 engine.version=0.5.23",
    ),
    # NVFP4 beside CUDA
    refused(
        kernels_at_load.check_formats_beside_cuda,
        "no kernels for layers in NVFP4 on ascend_910b (npu)",
        overrides="gpu=ascend_910b model=gemma_4_31b_nvfp4 tp_size=2 engine.version=0.5.23",
    ),
    refused(
        kernels_at_load.check_formats_beside_cuda,
        "no kernels for experts in NVFP4 on mi355x (ROCm)",
        overrides="gpu=mi355x model=deepseek_v4_flash_nvfp4 tp_size=8 engine.version=0.5.23",
    ),
    unchanged(
        kernels_at_load.check_formats_beside_cuda,
        overrides="gpu=b200 model=deepseek_v4_flash_nvfp4 tp_size=8 engine.version=0.5.23",
    ),
    refused(
        kernels_at_load.check_formats_beside_cuda,
        "no kernels for layers in NVFP4 on mi300x (ROCm)",
        overrides="gpu=mi300x model=gemma_4_31b_nvfp4 tp_size=16 nnodes=2 engine.version=0.5.23",
    ),
    refused(
        kernels_at_load.check_formats_beside_cuda,
        "no kernels for layers in NVFP4 on gaudi3 (hpu)",
        overrides="gpu=gaudi3 model=qwen3_6_27b_nvfp4 engine.version=0.5.23",
    ),
    unchanged(kernels_at_load.check_formats_beside_cuda, overrides="gpu=mi300x model=qwen3_8b"),
    # FlashAttention 3
    refused(
        kernels_at_load.check_flash_attention_3,
        "fa3 has no kernels for",
        overrides="gpu=b200 model=gpt_oss attention_backend=fa3",
    ),
    unchanged(kernels_at_load.check_flash_attention_3, overrides="gpu=a100_80gb model=qwen3_8b attention_backend=fa3"),
    refused(
        kernels_at_load.check_flash_attention_3,
        "8.0",
        overrides="gpu=a100_80gb model=deepseek_v3 tp_size=8 model.config.quantization_config=null "
        "attention_backend=fa3",
    ),
    unchanged(
        kernels_at_load.check_flash_attention_3, overrides="gpu=h100 model=qwen3_8b prefill_attention_backend=fa3"
    ),
    refused(
        kernels_at_load.check_flash_attention_3,
        "fa3 has no kernels for ROCm",
        overrides="gpu=mi300x model=qwen3_8b attention_backend=fa3",
    ),
    unchanged(kernels_at_load.check_flash_attention_3, overrides="gpu=mi300x model=qwen3_8b attention_backend=triton"),
    # parameters of a format; graphs and the memory saver
    warned(
        weights_at_load.check_parameters_of_a_format,
        "names no format",
        overrides="gpu=h100 model=qwen3_8b quantization=awq",
    ),
    unchanged(
        weights_at_load.check_parameters_of_a_format,
        overrides="gpu=h100 model=qwen3_8b quantization=awq model.config.quantization_config.quant_method=awq",
    ),
    refused(
        weights_at_load.check_breakable_graphs,
        "breakable graphs",
        overrides="gpu=h100 model=qwen3_8b enable_memory_saver=true cuda_graph_backend_prefill=breakable "
        "engine.version=0.5.23",
        env={"SGLANG_MEMORY_SAVER_CUDA_GRAPH": "1"},
    ),
    unchanged(
        weights_at_load.check_breakable_graphs,
        overrides="gpu=h100 model=qwen3_8b enable_memory_saver=true cuda_graph_backend_prefill=breakable "
        "engine.version=0.5.23",
    ),
    refused(
        weights_at_load.check_breakable_graphs,
        "dcp_size above 1",
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 dcp_size=8 cuda_graph_backend_prefill=breakable "
        "engine.version=0.5.23",
    ),
    # drafts
    refused(
        kernels_at_load.check_torch_native_drafts,
        "does not verify drafts",
        overrides="gpu=h100 model=qwen3_8b speculative_algorithm=NGRAM attention_backend=torch_native",
    ),
    unchanged(
        kernels_at_load.check_torch_native_drafts,
        overrides="gpu=h100 model=qwen3_8b speculative_algorithm=NGRAM attention_backend=triton",
    ),
    warned(
        kernels_at_load.check_outlines_drafts,
        "a request with structured output ends",
        overrides="gpu=h100 model=qwen3_8b speculative_algorithm=NGRAM grammar_backend=outlines",
    ),
    unchanged(kernels_at_load.check_outlines_drafts, overrides="gpu=h100 model=qwen3_8b grammar_backend=outlines"),
    warned(
        kernels_at_load.check_draft_model,
        "EAGLE has no draft model",
        overrides="gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE",
    ),
    unchanged(
        kernels_at_load.check_draft_model,
        overrides="gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE speculative_draft_model_path=x/y",
    ),
    unchanged(
        kernels_at_load.check_draft_model, overrides="gpu=h200 model=deepseek_v3 tp_size=8 speculative_algorithm=EAGLE"
    ),
    warned(
        weights_at_load.check_draft_context,
        "allows 2048 tokens",
        overrides="gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE3 "
        "speculative_draft_model_path=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    ),
    unchanged(
        weights_at_load.check_draft_context,
        overrides="gpu=h100 model=llama_3_1_8b speculative_algorithm=EAGLE3 context_length=2048 "
        "speculative_draft_model_path=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    ),
    unchanged(
        weights_at_load.check_draft_context,
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 speculative_algorithm=EAGLE "
        "speculative_draft_model_path=lmsys/DeepSeek-V3-NextN",
    ),
    refused(
        weights_at_load.check_eagle3_target,
        "does not feed an EAGLE-3 draft",
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 speculative_algorithm=EAGLE3 speculative_draft_model_path=x/y",
    ),
    unchanged(
        weights_at_load.check_eagle3_target,
        overrides="gpu=h200 model=gpt_oss speculative_algorithm=EAGLE3 speculative_draft_model_path=x/y",
    ),
    # latent attention and linear attention on the right GPU and backend
    warned(
        kernels_at_load.check_kernels_of_gpu,
        "Blackwell",
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=cutlass_mla",
    ),
    warned(
        kernels_at_load.check_kernels_of_gpu,
        "built for Hopper",
        overrides="gpu=b200 model=deepseek_v3 tp_size=8 attention_backend=flashmla",
    ),
    unchanged(
        kernels_at_load.check_kernels_of_gpu,
        overrides="gpu=b200 model=deepseek_v3 tp_size=8 decode_attention_backend=cutlass_mla",
    ),
    # changed or refused when the backend is made
    warned(
        attention_at_load.check_fa3_cache_type,
        "triton is used",
        overrides="gpu=h100 model=qwen3_8b attention_backend=fa3 kv_cache_dtype=fp8_e5m2",
    ),
    warned(
        attention_at_load.check_fa3_cache_type,
        "triton is used",
        overrides="gpu=b200 model=qwen3_8b attention_backend=fa3 kv_cache_dtype=fp8_e5m2",
    ),
    unchanged(
        attention_at_load.check_fa3_cache_type,
        overrides="gpu=h100 model=qwen3_8b attention_backend=fa3 kv_cache_dtype=fp8_e4m3",
    ),
    refused(
        attention_at_load.check_cross_attention,
        "no cross attention",
        overrides="gpu=h100 model=qwen3_8b model.config.architectures=[MllamaForConditionalGeneration] "
        "attention_backend=triton",
    ),
    unchanged(
        attention_at_load.check_cross_attention,
        overrides="gpu=h100 model=qwen3_8b model.config.architectures=[MllamaForConditionalGeneration]",
    ),
    refused(
        attention_at_load.check_dual_chunks,
        "two chunks",
        overrides="gpu=h100 model=qwen2_5_7b +model.config.dual_chunk_attention_config={chunk_size:262144} "
        "attention_backend=fa3",
    ),
    unchanged(
        attention_at_load.check_dual_chunks,
        overrides="gpu=h100 model=qwen2_5_7b +model.config.dual_chunk_attention_config={chunk_size:262144}",
    ),
    refused(
        attention_at_load.check_graph_sizes,
        "multiples of 4",
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 dp_size=2 enable_dp_attention=true cuda_graph_max_bs=2",
    ),
    unchanged(
        attention_at_load.check_graph_sizes,
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 dp_size=2 enable_dp_attention=true cuda_graph_max_bs=4",
    ),
    # shapes
    refused(
        weights_at_load.check_quantized_shapes,
        "192 outputs on each GPU",
        overrides="gpu=h200 model_path=Qwen/Qwen3-235B-A22B-FP8 tp_size=8",
    ),
    unchanged(
        weights_at_load.check_quantized_shapes,
        overrides="gpu=h200 model_path=Qwen/Qwen3-235B-A22B-FP8 tp_size=8 ep_size=8",
    ),
    unchanged(
        weights_at_load.check_quantized_shapes, overrides="gpu=h200 model_path=Qwen/Qwen3-235B-A22B-FP8 tp_size=4"
    ),
    refused(
        weights_at_load.check_quantized_shapes,
        "3696 inputs on each GPU",
        overrides="gpu=h100 model_path=Qwen/Qwen2.5-VL-72B-Instruct-AWQ tp_size=8",
    ),
    unchanged(
        weights_at_load.check_quantized_shapes,
        overrides="gpu=h100 model_path=Qwen/Qwen2.5-VL-72B-Instruct-AWQ tp_size=1",
    ),
    unchanged(weights_at_load.check_quantized_shapes, overrides="gpu=h200 model=deepseek_v3 tp_size=16 nnodes=2"),
    refused(
        weights_at_load.check_experts,
        "ep_size=3 does not divide tp_size=4",
        overrides="gpu=h100 model=qwen3_30b_a3b tp_size=4 ep_size=3",
    ),
    refused(
        weights_at_load.check_experts,
        "ep_size=4 does not divide tp_size=2",
        overrides="gpu=h100 model=qwen3_8b tp_size=2 ep_size=4",
    ),
    refused(
        weights_at_load.check_experts,
        "126 experts do not divide",
        overrides="gpu=h100 model=qwen3_30b_a3b model.config.num_experts=126 tp_size=4 ep_size=4",
    ),
    unchanged(
        weights_at_load.check_experts,
        overrides="gpu=h100 model=qwen3_30b_a3b model.config.num_experts=126 tp_size=4 ep_size=4 "
        "ep_num_redundant_experts=2",
    ),
    refused(
        weights_at_load.check_experts,
        "6 experts do not divide",
        overrides="gpu=h100 model=mixtral_8x7b model.config.num_local_experts=6 tp_size=4 ep_size=4 "
        "ep_num_redundant_experts=2",
    ),  # its class has no redundant experts
    unchanged(weights_at_load.check_experts, overrides="gpu=h100 model=qwen3_30b_a3b tp_size=4 ep_size=4"),
    # formats and classes of later releases
    refused(
        weights_at_load.check_compressed_format,
        "4 bit floats",
        overrides="gpu=b200 model=qwen3_8b +model.config.quantization_config={quant_method:compressed-tensors,"
        "config_groups:{g:{targets:[Linear],weights:{num_bits:4,type:float,strategy:tensor_group,group_size:16}}}}",
    ),
    warned(
        weights_at_load.check_compressed_format,
        "vLLM's kernels",
        overrides="gpu=h100 model=qwen3_8b +model.config.quantization_config={quant_method:compressed-tensors,"
        "config_groups:{g:{targets:[Linear],weights:{num_bits:4,type:int,strategy:group,group_size:128}}}}",
    ),
    unchanged(
        weights_at_load.check_compressed_format,
        overrides="gpu=h100 model=qwen3_8b +model.config.quantization_config={quant_method:compressed-tensors,"
        "config_groups:{g:{targets:[Linear],weights:{num_bits:8,type:float,strategy:channel}}}}",
    ),
    refused(
        weights_at_load.check_class,
        "0.5.9 is the first release",
        overrides="gpu=h100 model=qwen3_8b model.config.architectures=[Qwen3_5ForConditionalGeneration] "
        "engine.version=0.5.2",
    ),
    refused(
        weights_at_load.check_class,
        "SGLang 0.5.12 has no class KimiK3ForConditionalGeneration: 0.5.17",
        overrides="gpu=b300 model=kimi_k3 tp_size=8 engine.version=0.5.12",
    ),
    unchanged(weights_at_load.check_class, overrides="gpu=b300 model=kimi_k3 tp_size=8 engine.version=0.5.17"),
    unchanged(
        weights_at_load.check_class,
        overrides="gpu=b300 model=kimi_k3 tp_size=8 engine.version=0.5.12 "
        "engine.env.SGLANG_EXTERNAL_MODEL_PACKAGE=mine",
    ),
    unchanged(
        weights_at_load.check_class,
        overrides="gpu=h100 model=qwen3_8b model.config.architectures=[Qwen3_5ForConditionalGeneration] "
        "model_impl=transformers",
    ),
    warned(
        weights_at_load.check_class,
        "no release up to 0.5.23",
        overrides="gpu=h100 model=qwen3_8b model.config.architectures=[NobodyForCausalLM]",
    ),
    warned(
        weights_at_load.check_class,
        "any more",
        overrides="gpu=h100 model=qwen3_8b model.config.architectures=[VILAForConditionalGeneration] "
        "engine.version=0.5.23",
    ),
    unchanged(weights_at_load.check_class, overrides="gpu=h100 model=qwen3_8b"),
    # old GPUs
    refused(
        kernels_at_load.check_lowest_gpu,
        "7.5 is the lowest",
        overrides="gpu=t4 model=qwen3_0_6b gpu.compute_capability='7.0'",
    ),
    unchanged(kernels_at_load.check_lowest_gpu, overrides="gpu=t4 model=qwen3_0_6b"),
    # deprecated flags
    warned(
        ineffective.check_deprecated_flags,
        "enable_ep_moe is deprecated",
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 enable_ep_moe=true",
    ),
    unchanged(ineffective.check_deprecated_flags, overrides="gpu=h200 model=deepseek_v3 tp_size=8 ep_size=8"),
    # the HTTP server
    refused(
        api.check_key_with_tokenizer_workers,
        "does not work with an api_key",
        overrides="gpu=h200 model=qwen3_8b api_key=k tokenizer_worker_num=2",
    ),
    unchanged(api.check_key_with_tokenizer_workers, overrides="gpu=h200 model=qwen3_8b api_key=k"),
    unchanged(api.check_key_with_tokenizer_workers, overrides="gpu=h200 model=qwen3_8b tokenizer_worker_num=2"),
)
AREAS = ("RUN", "DEP004", "API")


@pytest.fixture(autouse=True)
def no_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check(AREAS)


def test_a_slip_of_the_finger_in_a_size_is_answered_like_any_other() -> None:
    """Offers are looked for among numbers of ranks that exist, not up to what was typed."""
    found = planned("gpu=h200", "model=deepseek_v3", "tp_size=99999999999").findings
    assert {"ARG020", "RUN010", "RUN018"} <= {finding.id for finding in found}


def test_a_class_that_leaves_the_check_of_blocks_out_is_not_refused() -> None:
    """The command of the model's own README (XiaomiMiMo/MiMo-V2-Flash, 2026-01-08)."""
    words = "engine.version=0.5.23 gpu=h200 model=mimo_v2_flash tp_size=8 dp_size=2 enable_dp_attention=true"
    assert "RUN010" not in {item.id for item in planned(*words.split()).findings}


def test_petit_takes_a_whole_checkpoint_in_nvfp4_on_rocm_until_modelopt_is_found_first() -> None:
    ids = {
        version: [item.id for item in planned("gpu=mi300x", f"engine.version={version}", *FP4.split()).findings]
        for version in ("0.5.2", "0.5.4")
    }
    assert ("RUN022" in ids["0.5.2"], "RUN022" in ids["0.5.4"]) == (False, True)
