"""TensorRT-LLM's attention."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import kernels
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(kernels.trtllm_mla_runs_on_blackwell, "h100 is SM90", gpu="h100", attention_backend="trtllm_mla"),
    refused(kernels.trtllm_mla_runs_on_blackwell, "SM120", gpu="rtx_5090", decode_attention_backend="trtllm_mla"),
    refused(kernels.trtllm_mla_runs_on_blackwell, "amd", gpu="mi300x", attention_backend="trtllm_mla"),
    unchanged(kernels.trtllm_mla_runs_on_blackwell, gpu="h100", prefill_attention_backend="trtllm_mla"),
    unchanged(kernels.trtllm_mla_runs_on_blackwell, gpu="b200", attention_backend="trtllm_mla"),
    refused(
        TABLE["KER009"],
        "fp8_e5m2",
        "fp8_e4m3 or auto",
        gpu="b200",
        attention_backend="trtllm_mla",
        kv_cache_dtype="fp8_e5m2",
    ),
    unchanged(TABLE["KER009"], gpu="b200", attention_backend="trtllm_mla"),
    unchanged(TABLE["KER009"], gpu="b200", attention_backend="trtllm_mha", kv_cache_dtype="fp8_e5m2"),
    refused(kernels.trtllm_mha_runs_on_blackwell, "a100 is SM80", gpu="a100", prefill_attention_backend="trtllm_mha"),
    refused(kernels.trtllm_mha_runs_on_blackwell, "none", gpu="cpu", attention_backend="trtllm_mha"),
    unchanged(kernels.trtllm_mha_runs_on_blackwell, gpu="b200", attention_backend="trtllm_mha"),
    unchanged(kernels.trtllm_mha_runs_on_blackwell, gpu="h100"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
