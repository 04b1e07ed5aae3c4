"""Devices."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import runtime
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    refused(runtime.device_exists, "this machine has no GPU", gpu="none"),
    unchanged(runtime.device_exists, gpu="none", device="cuda"),
    unchanged(runtime.device_memory_is_readable, gpu="h100", device="hpu"),
    unchanged(runtime.device_memory_is_readable, gpu="gaudi3", device="hpu"),
    unchanged(runtime.device_memory_is_readable, gpu="gaudi3", device="cpu"),
    unchanged(runtime.device_memory_is_readable, gpu="xpu", device="xpu"),
    unchanged(runtime.device_memory_is_readable, gpu="none", device="cuda"),
    refused(runtime.device_memory_is_readable, "device=hpu", "hl-smi", gpu="cpu", device="hpu"),
    refused(runtime.device_memory_is_readable, "device=npu", "torch_npu", gpu="gaudi3", device="npu"),
    refused(runtime.device_memory_is_readable, "unmeasured", "unknown", gpu="unmeasured", device="cuda"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
