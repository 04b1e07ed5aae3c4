"""Describes the machine that a point was measured on, so that points can be compared."""

from __future__ import annotations

import functools
import os
import platform
import socket
from pathlib import Path
from typing import Any

from sglang_hydra.facts.packages import installed
from sglang_hydra.measure.bench.gpus import driver_version
from sglang_hydra.text.version import VERSION

_ENGINE_PACKAGES = ("sglang", "transformers", "torch", "sgl-kernel", "sglang-kernel", "flashinfer-python")


@functools.cache
def machine(python: str | None) -> dict[str, Any]:
    """The host, its CPU and GPU driver, and the versions of this package and of the engine in ``python``, as they were
    at the first call. What cannot be known is left out."""
    found = installed(python).versions
    packages = {f"engine's {name}": str(found[name]) for name in _ENGINE_PACKAGES if name in found}
    return {**_host(), **packages}


@functools.cache
def _host() -> dict[str, Any]:
    known = {
        "host": socket.gethostname(),
        "operating system": platform.platform(),
        "cpu": f"{_cpu() or platform.machine()}, {os.cpu_count()} cores",
        "gpu driver": driver_version(),
        "python": platform.python_version(),
        "sglang-hydra": VERSION,
    }
    return {name: value for name, value in known.items() if value is not None}


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
