"""gpt-oss and Gemma."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(TABLE["MDL004"], {"attention_backend": "trtllm_mha"}, gpu="b200", model="gpt_oss"),
    changed(TABLE["MDL004"], {"attention_backend": "fa3"}, gpu="h100", model="gpt_oss"),
    changed(TABLE["MDL004"], {"attention_backend": "triton"}, gpu="rtx_5090", model="gpt_oss"),
    changed(TABLE["MDL004"], {"attention_backend": "triton"}, gpu="mi300x", model="gpt_oss"),
    unchanged(TABLE["MDL004"], model="gpt_oss", attention_backend="flashinfer"),
    unchanged(TABLE["MDL004"], model="llama_3_1_8b"),
    unchanged(TABLE["MDL004"], model="unknown"),
    changed(
        TABLE["MDL004"],
        {"attention_backend": "fa3"},
        json_model_override_args='{"architectures": ["GptOssForCausalLM"]}',
    ),
    changed(TABLE["MDL006"], {"enable_flashinfer_allreduce_fusion": True}, gpu="b200", model="gpt_oss_bf16"),
    unchanged(TABLE["MDL006"], gpu="b200", model="gpt_oss", enable_dp_attention=True),
    unchanged(TABLE["MDL006"], gpu="h100", model="gpt_oss"),
    changed(
        TABLE["MDL007"],
        {"moe_runner_backend": "flashinfer_mxfp4"},
        gpu="b200",
        model="gpt_oss",
        moe_runner_backend="triton_kernel",
    ),
    unchanged(TABLE["MDL007"], gpu="b200", model="gpt_oss_bf16"),
    unchanged(TABLE["MDL007"], gpu="h100", model="gpt_oss"),
    unchanged(
        TABLE["MDL007"],
        gpu="b200",
        model="gpt_oss",
        json_model_override_args='{"quantization_config": null}',
    ),
    changed(TABLE["MDL009"], {"moe_runner_backend": "triton_kernel"}, gpu="h100", model="gpt_oss"),
    unchanged(TABLE["MDL009"], gpu="mi300x", model="gpt_oss"),
    unchanged(TABLE["MDL009"], gpu="h100", model="gpt_oss", ep_size=2),
    unchanged(TABLE["MDL009"], gpu="h100", model="gpt_oss", moe_runner_backend="triton"),
    unchanged(TABLE["MDL009"], gpu="h100", model="mixtral_8x7b"),
    changed(TABLE["MDL010"], {"disable_hybrid_swa_memory": True}, model="gpt_oss"),
    unchanged(TABLE["MDL010"], model="gemma_3_27b"),
    changed(TABLE["MDL011"], {"dtype": "bfloat16"}, model="gpt_oss", dtype="float16"),
    unchanged(TABLE["MDL011"], model="gpt_oss_bf16"),
    changed(TABLE["MDL013"], {"disable_hybrid_swa_memory": True}, model="gemma_3_27b"),
    unchanged(TABLE["MDL013"], model="gpt_oss"),
    unchanged(TABLE["MDL013"], model="unknown"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
