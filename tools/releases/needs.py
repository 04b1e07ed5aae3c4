"""What one release needs: Python, torch with its CUDA, transformers, kernels. From METADATA, and from torch's own."""

from __future__ import annotations

import re
from typing import Any

from releases.wheel import Wheel

PACKAGES = (
    "torch",
    "torchaudio",
    "transformers",
    "sgl-kernel",
    "sglang-kernel",
    "flashinfer-python",
    "xgrammar",
    "outlines",
    "llguidance",
    "torchao",
    "cuda-python",
    "nvidia-cutlass-dsl",
    "openai",
)
_SERVER_EXTRAS = ("runtime-common", "runtime_common", "srt")
"""Up to 0.5.2 the server's requirements are in extras; from 0.5.3 on they are the package's own."""

_TORCH_CUDA = {
    "2.8.0": "12.8",
    "2.9.0": "12.8",
    "2.9.1": "12.8",
    "2.11.0": "13.0",
    "2.12.0": "13.0",
    "2.13.0": "13.0",
    "2.14.1": "13.0",
}
"""The CUDA toolkit of torch's wheels for Linux. Source: Requires-Dist of torch's METADATA on the registry
(nvidia-cuda-runtime-cu12==12.8.90 of 2.8.0 and 2.9.1, cuda-toolkit==13.0.2 of 2.11.0 and 2.12.0, ==13.0.3 of later)."""

_FAMILY_DRIVERS = {"12": "525.60.13", "13": "580.65.06"}
"""CUDA's major version to the oldest driver for Linux that runs it. Source: NVIDIA's CUDA compatibility guide."""

_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)\s*(?P<extras>\[[^]]*\])?\s*\(?(?P<wanted>[^;)]*)\)?\s*(?:;(?P<marker>.*))?"
)


def read_needs(wheel: Wheel) -> dict[str, Any]:
    """``python`` (a specifier), ``packages`` by name with their specifiers, ``cuda``, ``driver``; null: not stated."""
    packages: dict[str, str] = {}
    for line in wheel.metadata.get("Requires-Dist", []):
        match = _REQUIREMENT.fullmatch(line.strip())
        if match is None:
            continue
        name = re.sub(r"[-_.]+", "-", match["name"]).lower()
        if name in PACKAGES and _belongs(match["marker"] or ""):
            packages.setdefault(name, match["wanted"].strip())
    torch = packages.get("torch", "").removeprefix("==")
    cuda = _TORCH_CUDA.get(torch)
    return {
        "python": next(iter(wheel.metadata.get("Requires-Python", [])), None),
        "packages": dict(sorted(packages.items())),
        "cuda": cuda,
        "driver": _FAMILY_DRIVERS.get(cuda.partition(".")[0]) if cuda else None,
    }


def _belongs(marker: str) -> bool:
    """Whether a server on Linux with an NVIDIA GPU installs what has this marker."""
    extra = re.search(r"extra\s*==\s*[\"']([^\"']+)[\"']", marker)
    return extra is None or extra[1] in _SERVER_EXTRAS
