"""MoE kernels."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import attention_at_load, experts, weights_at_load
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged, warned

_V3, _GPT_OSS = "gpu=h200 model=deepseek_v3 tp_size=8", "gpu=h200 model=gpt_oss_20b"
_DEEPEP = f"{_V3} dp_size=8 enable_dp_attention=true moe_a2a_backend=deepep"
ROWS = (
    refused(TABLE["MOE001"], "modelopt_fp4, not fp8", moe_runner_backend="flashinfer_cutlass", quantization="fp8"),
    unchanged(TABLE["MOE001"], moe_runner_backend="flashinfer_cutlass", quantization="modelopt_fp4"),
    unchanged(TABLE["MOE001"], quantization="fp8"),
    refused(
        TABLE["MOE002"],
        "tp_size=8; got 2",
        moe_runner_backend="flashinfer_cutlass",
        tp_size=8,
        ep_size=2,
    ),
    unchanged(TABLE["MOE002"], moe_runner_backend="flashinfer_cutlass", tp_size=8, ep_size=8),
    unchanged(TABLE["MOE002"], tp_size=8, ep_size=2),
    refused(TABLE["MOE003"], "not null", moe_runner_backend="flashinfer_trtllm"),
    unchanged(TABLE["MOE003"], moe_runner_backend="flashinfer_trtllm", quantization="fp8"),
    unchanged(TABLE["MOE003"], quantization="awq"),
    refused(experts.eplb_has_experts_to_move, "got 1", enable_eplb=True),
    unchanged(experts.eplb_has_experts_to_move, enable_eplb=True, ep_size=2),
    unchanged(experts.eplb_has_experts_to_move),
    *(
        refused(weights_at_load.check_expert_runner, f"no kernels for {lacking}", overrides=words)
        for lacking, words in (
            ("experts in FP8", f"{_V3} engine.version=0.5.12 moe_runner_backend=flashinfer_cutlass"),
            ("experts in FP8", f"{_V3} engine.version=0.5.23 moe_runner_backend=triton_kernel"),
            ("experts in MXFP4", f"{_GPT_OSS} engine.version=0.5.17 moe_runner_backend=flashinfer_trtllm"),
            ("experts in MXFP4", f"{_GPT_OSS} engine.version=0.5.23 moe_runner_backend=cutlass"),
            ("experts in MXFP4", f"{_GPT_OSS} engine.version=0.5.12 moe_runner_backend=deep_gemm"),
            ("moe_a2a_backend=deepep", f"{_DEEPEP} engine.version=0.5.17 moe_runner_backend=marlin"),
        )
    ),
    *(
        unchanged(weights_at_load.check_expert_runner, overrides=words)
        for words in (
            f"{_V3} engine.version=0.5.12 moe_runner_backend=cutlass",
            f"{_V3} engine.version=0.5.20 moe_runner_backend=flashinfer_cutlass",
            f"{_V3} engine.version=0.5.12 moe_runner_backend=flashinfer_cutlass moe_a2a_backend=deepep",
            f"{_V3} engine.version=0.5.2 moe_runner_backend=flashinfer_cutlass",
            f"{_GPT_OSS} engine.version=0.5.17 moe_runner_backend=deep_gemm",
            f"{_GPT_OSS} engine.version=0.5.12 moe_runner_backend=flashinfer_mxfp4",
            "gpu=h200 model=qwen3_8b quantization=fp8 engine.version=0.5.12 moe_runner_backend=triton_kernel",
            "gpu=b200 model=deepseek_v4_flash tp_size=4 engine.version=0.5.23 moe_runner_backend=flashinfer_mxfp4",
        )
    ),
    # tokens that DeepEP takes
    *(
        warned(
            attention_at_load.check_dispatched_tokens,
            f"sends {sent} tokens",
            overrides=f"{_DEEPEP} cuda_graph_max_bs=256 {words}",
        )
        for sent, words in (
            (256, ""),
            (200, "max_running_requests=1600"),
            (
                1024,
                "speculative_algorithm=EAGLE speculative_num_steps=3 speculative_eagle_topk=1 "
                "speculative_num_draft_tokens=4 max_running_requests=4096",
            ),
        )
    ),
    *(
        unchanged(attention_at_load.check_dispatched_tokens, overrides=f"{_DEEPEP} {words}", env=env)
        for words, env in (
            ("cuda_graph_max_bs=128", {}),
            ("cuda_graph_max_bs=256 deepep_mode=normal", {}),
            ("cuda_graph_max_bs=256 enable_two_batch_overlap=true", {}),
            ("cuda_graph_max_bs=256", {"SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": "256"}),
            ("cuda_graph_max_bs=256 dp_size=1 enable_dp_attention=false", {}),
        )
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
