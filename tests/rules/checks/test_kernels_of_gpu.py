"""Kernels and formats that a kind of GPU has not."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import attention_at_load, kernels_at_load
from tests.plans import without_engines
from tests.rules.cases import Row, refused, unchanged, warned

LLAMA_4 = (
    "model=llama_4_scout tp_size=4 "
    'json_model_override_args={"quantization_config":{"quant_method":"modelopt","quant_algo":"NVFP4"}}'
)

ROWS = (
    # FP8, MXFP4 and others where nothing computes them
    refused(
        kernels_at_load.check_formats_beside_cuda,
        "no kernels for weights in FP8 on ascend_910b (npu)",
        overrides="gpu=ascend_910b model=qwen3_8b quantization=fp8",
    ),
    refused(
        kernels_at_load.check_formats_beside_cuda,
        "weights in FP8 on ascend_910b",
        overrides="gpu=ascend_910b model=deepseek_v3 tp_size=16 nnodes=2",
    ),
    refused(
        kernels_at_load.check_formats_beside_cuda,
        "weights in FP8 on ascend_910b",
        overrides="gpu=ascend_910b model=glm_4_5 model_path=zai-org/GLM-4.5-FP8 tp_size=8",
    ),
    refused(
        kernels_at_load.check_formats_beside_cuda,
        "weights in MXFP4 on ascend_910b",
        overrides="gpu=ascend_910b model=gpt_oss_20b engine.version=0.5.23",
    ),
    refused(
        kernels_at_load.check_formats_beside_cuda,
        "weights in fp8 on gaudi2 (hpu)",
        overrides="gpu=gaudi2 model=qwen3_8b quantization=fp8",
    ),
    unchanged(kernels_at_load.check_formats_beside_cuda, overrides="gpu=ascend_910b model=qwen3_8b"),
    unchanged(kernels_at_load.check_formats_beside_cuda, overrides="gpu=gaudi2 model=qwen3_8b"),
    unchanged(kernels_at_load.check_formats_beside_cuda, overrides="gpu=mi300x model=deepseek_v3 tp_size=8"),
    # FlashInfer's trtllm-gen kernels exist for SM100 alone: sgl-project/sglang#24633, flashinfer-ai/flashinfer#3263
    warned(
        kernels_at_load.check_kernels_of_gpu,
        "built for Blackwell (SM100)",
        overrides="gpu=rtx_pro_6000 model=qwen3_30b_a3b moe_runner_backend=flashinfer_trtllm",
    ),
    unchanged(
        kernels_at_load.check_kernels_of_gpu,
        overrides="gpu=b200 model=qwen3_30b_a3b moe_runner_backend=flashinfer_trtllm",
    ),
    warned(
        kernels_at_load.check_kernels_of_gpu,
        "moe_a2a_backend=deepep is built for Hopper and Blackwell",
        overrides="gpu=rtx_pro_6000 model=qwen3_30b_a3b tp_size=4 moe_a2a_backend=deepep engine.version=0.5.18",
    ),
    refused(
        kernels_at_load.check_kernels_of_gpu,
        "moe_a2a_backend=megamoe is built for",
        overrides="gpu=rtx_pro_6000 model=deepseek_v4_flash tp_size=8 moe_a2a_backend=megamoe engine.version=0.5.18",
    ),
    unchanged(
        kernels_at_load.check_kernels_of_gpu,
        overrides="gpu=b200 model=deepseek_v4_flash tp_size=8 moe_a2a_backend=megamoe engine.version=0.5.18",
    ),
    warned(
        kernels_at_load.check_kernels_of_gpu,
        "the server stops before it captures graphs",
        overrides="gpu=rtx_5090 model=qwen3_30b_a3b tp_size=4 gpu.count=4 flashinfer_allreduce_fusion_backend=auto "
        "engine.version=0.5.18",
    ),
    warned(
        kernels_at_load.check_kernels_of_gpu,
        "enable_torch_symm_mem=true is built for",
        overrides="gpu=a100_80gb model=qwen3_8b tp_size=4 enable_torch_symm_mem=true engine.version=0.5.12",
    ),
    unchanged(
        kernels_at_load.check_kernels_of_gpu,
        overrides="gpu=h200 model=qwen3_8b tp_size=4 enable_torch_symm_mem=true engine.version=0.5.12",
    ),
    # experts in NVFP4
    warned(
        kernels_at_load.check_nvfp4_runner,
        "kernels for SM100, and rtx_pro_6000 has compute capability 12.0",
        overrides="gpu=rtx_pro_6000 model=qwen3_5_397b_nvfp4 tp_size=8 engine.version=0.5.23",
    ),
    unchanged(
        kernels_at_load.check_nvfp4_runner,
        overrides="gpu=rtx_pro_6000 model=qwen3_5_397b_nvfp4 tp_size=8 quantization=modelopt_fp4 engine.version=0.5.23",
    ),
    unchanged(
        kernels_at_load.check_nvfp4_runner,
        overrides="gpu=b200 model=qwen3_5_397b_nvfp4 tp_size=8 engine.version=0.5.23",
    ),
    refused(
        kernels_at_load.check_weights_on_input,
        "flashinfer_cutedsl multiplies no expert's input",
        overrides=f"gpu=rtx_pro_6000 {LLAMA_4} moe_runner_backend=flashinfer_cutedsl engine.version=0.5.23",
    ),
    warned(
        kernels_at_load.check_weights_on_input,
        "marlin multiplies no expert's input by the router's weight, as Llama 4 needs it: the answers are wrong",
        overrides=f"gpu=h100 {LLAMA_4} engine.version=0.5.18",
    ),
    unchanged(kernels_at_load.check_weights_on_input, overrides=f"gpu=b200 {LLAMA_4} engine.version=0.5.18"),
    unchanged(
        kernels_at_load.check_weights_on_input,
        overrides="gpu=rtx_pro_6000 model=qwen3_5_397b_nvfp4 tp_size=8 quantization=modelopt_fp4 engine.version=0.5.23",
    ),
    refused(
        attention_at_load.check_latent_backend,
        "torch_native",
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=torch_native",
    ),
    unchanged(
        attention_at_load.check_latent_backend,
        overrides="gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=triton",
    ),
    warned(
        attention_at_load.check_delta_net_gpu,
        "FlashAttention 3",
        overrides="gpu=b200 model=qwen3_next_80b_a3b tp_size=2",
    ),
    warned(attention_at_load.check_delta_net_gpu, "mi300x", overrides="gpu=mi300x model=qwen3_next_80b_a3b tp_size=2"),
    unchanged(attention_at_load.check_delta_net_gpu, overrides="gpu=h200 model=qwen3_next_80b_a3b tp_size=2"),
)


@pytest.fixture(autouse=True)
def no_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check(("RUN", "DEP004", "API"))
