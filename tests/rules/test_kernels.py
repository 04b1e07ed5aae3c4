"""Backends by device."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import kernels
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(
        kernels.force_backends_on_gaudi,
        {"attention_backend": "torch_native", "sampling_backend": "pytorch"},
        gpu="gaudi3",
        device="hpu",
        attention_backend="triton",
    ),
    unchanged(kernels.force_backends_on_gaudi, gpu="gaudi3", device="cpu"),
    changed(kernels.attention_on_cpu, {"attention_backend": "intel_amx"}, device="cpu"),
    unchanged(kernels.attention_on_cpu, device="cpu", attention_backend="torch_native"),
    unchanged(kernels.attention_on_cpu, device="cuda"),
    changed(kernels.sampling_on_cpu, {"sampling_backend": "pytorch"}, device="cpu", sampling_backend="flashinfer"),
    unchanged(kernels.sampling_on_cpu, device="cuda"),
    changed(kernels.choose_sampling_backend, {"sampling_backend": "flashinfer"}, gpu="h100"),
    changed(kernels.choose_sampling_backend, {"sampling_backend": "pytorch"}, gpu="mi300x_with_flashinfer"),
    changed(kernels.choose_sampling_backend, {"sampling_backend": "pytorch"}, gpu="mi300x"),
    changed(
        kernels.choose_sampling_backend,
        {"sampling_backend": "pytorch"},
        gpu="h100",
        env={"SGLANG_IS_FLASHINFER_AVAILABLE": "False"},
    ),
    unchanged(kernels.choose_sampling_backend, sampling_backend="pytorch"),
    changed(
        kernels.limits_of_dual_chunk_attention,
        {"enable_mixed_chunk": False, "disable_cuda_graph": True, "disable_radix_cache": True},
        attention_backend="dual_chunk_flash_attn",
        enable_mixed_chunk=True,
    ),
    unchanged(kernels.limits_of_dual_chunk_attention, prefill_attention_backend="dual_chunk_flash_attn"),
    changed(
        kernels.more_kv_splits_on_rocm,
        {"triton_attention_num_kv_splits": 16},
        gpu="mi300x",
        triton_attention_num_kv_splits=4,
    ),
    unchanged(kernels.more_kv_splits_on_rocm, gpu="h100"),
    changed(kernels.choose_grammar_backend, {"grammar_backend": "xgrammar"}),
    unchanged(kernels.choose_grammar_backend, grammar_backend="none"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
