"""Backends by device."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(
        TABLE["KER001"],
        {"attention_backend": "torch_native", "sampling_backend": "pytorch"},
        gpu="gaudi3",
        device="hpu",
        attention_backend="triton",
    ),
    unchanged(TABLE["KER001"], gpu="gaudi3", device="cpu"),
    changed(TABLE["KER002"], {"attention_backend": "intel_amx"}, device="cpu"),
    unchanged(TABLE["KER002"], device="cpu", attention_backend="torch_native"),
    unchanged(TABLE["KER002"], device="cuda"),
    changed(TABLE["KER003"], {"sampling_backend": "pytorch"}, device="cpu", sampling_backend="flashinfer"),
    unchanged(TABLE["KER003"], device="cuda"),
    changed(TABLE["KER004"], {"sampling_backend": "flashinfer"}, gpu="h100"),
    changed(TABLE["KER004"], {"sampling_backend": "pytorch"}, gpu="mi300x_with_flashinfer"),
    changed(TABLE["KER004"], {"sampling_backend": "pytorch"}, gpu="mi300x"),
    changed(
        TABLE["KER004"],
        {"sampling_backend": "pytorch"},
        gpu="h100",
        env={"SGLANG_IS_FLASHINFER_AVAILABLE": "False"},
    ),
    unchanged(TABLE["KER004"], sampling_backend="pytorch"),
    changed(
        TABLE["KER005"],
        {"enable_mixed_chunk": False, "disable_cuda_graph": True, "disable_radix_cache": True},
        attention_backend="dual_chunk_flash_attn",
        enable_mixed_chunk=True,
    ),
    unchanged(TABLE["KER005"], prefill_attention_backend="dual_chunk_flash_attn"),
    changed(
        TABLE["KER006"],
        {"triton_attention_num_kv_splits": 16},
        gpu="mi300x",
        triton_attention_num_kv_splits=4,
    ),
    unchanged(TABLE["KER006"], gpu="h100"),
    changed(TABLE["KER007"], {"grammar_backend": "xgrammar"}),
    unchanged(TABLE["KER007"], grammar_backend="none"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
