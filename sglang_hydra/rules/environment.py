"""The environment variables that SGLang sets while it resolves its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def planned_environment(values: Mapping[str, Any]) -> dict[str, str]:
    """The variables by name (SGLang 0.5.2, server_args.py lines 839-848): switches that kernels read from there."""
    return {
        "SGLANG_ENABLE_TORCH_COMPILE": "1" if values["enable_torch_compile"] else "0",
        "SGLANG_MAMBA_SSM_DTYPE": str(values["mamba_ssm_dtype"]),
        "SGLANG_DISABLE_OUTLINES_DISK_CACHE": "1" if values["disable_outlines_disk_cache"] else "0",
    }
