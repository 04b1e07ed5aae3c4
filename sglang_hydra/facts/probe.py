"""Probes this machine's accelerators and the hub: the only entry to both.

``nvml`` and ``accelerators`` read the hardware, and ``hub`` reads models. Importing this module does nothing. Every
attempt leaves a sentence, so that a probe without result says where it looked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sglang_hydra.facts.accelerators import Search
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.hub import read_model
from sglang_hydra.facts.weights import weights_bytes

__all__ = ["GpuProbe", "machine", "probe_gpu", "read_model", "weights_bytes"]


@dataclass(frozen=True, slots=True)
class GpuProbe:
    """The accelerators of a machine, by its own tools.

    ``memory_mib`` is SGLang's value: the smallest total over **all** GPUs of the machine, in MiB;
    ``visible_memory_mib`` is the smallest over the visible ones. ``count`` counts the visible GPUs, ``total`` all.
    ``name`` and ``compute_capability`` are those of the first visible GPU. ``visible`` is the variable that hides GPUs,
    as ``NAME=value``, if one is set. ``device`` is None without a usable accelerator. ``tried`` holds one sentence for
    each attempt."""

    vendor: str = "none"
    device: str | None = None
    names: tuple[str, ...] = ()
    memory_mib: float | None = None
    visible_memory_mib: float | None = None
    compute_capability: tuple[int, int] | None = None
    count: int = 0
    total: int = 0
    mig: bool = False
    visible: str | None = None
    flashinfer: bool = False
    triton_kernels: bool = False
    tried: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Returns whether a process of this environment can use an accelerator."""
        return self.vendor != "none"

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None

    def facts(self, name: str | None = None) -> GpuFacts:
        """Returns the probed values as facts; ``name`` is the recognised GPU class."""
        return GpuFacts(
            name=name or self.name or ("cpu" if self.device == "cpu" else "none"),
            vendor=self.vendor,
            device=self.device,
            memory_mib=self.memory_mib,
            compute_capability=self.compute_capability,
            count=self.count if self.found or self.device is None else None,
            flashinfer=self.flashinfer,
            triton_kernels=self.triton_kernels,
            extra={
                "visible_memory_mib": self.visible_memory_mib,
                "total": self.total,
                "mig": self.mig,
                "visible": self.visible,
                "tried": list(self.tried),
            },
        )


def probe_gpu(
    env: Mapping[str, str] = os.environ, *, python: str | None = None, site_paths: Sequence[str] | None = None
) -> GpuProbe:
    """Finds the accelerators of this machine that a process with the environment ``env`` would see.

    It tries NVIDIA's library first, then rocminfo, hl-smi and, where a torch for other accelerators is installed, torch
    in a child process. ``python`` is the engine's interpreter (None: this one), whose environment is searched for
    flashinfer and triton_kernels; ``site_paths`` names its import folders instead. Never raises for a missing or broken
    tool: ``tried`` says it."""
    import platform

    from sglang_hydra.facts.accelerators import Search, find_amd, find_by_torch, find_habana, find_nvidia, smallest

    search = Search(env, python, site_paths)
    found = find_nvidia(search) or find_amd(search) or find_habana(search) or find_by_torch(search)
    is_x86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
    cpu_engine = env.get("SGLANG_USE_CPU_ENGINE", "0") == "1" and is_x86
    if cpu_engine:
        search.tried.append("SGLANG_USE_CPU_ENGINE=1: SGLang would use its CPU engine")
    if found is None:
        return GpuProbe(device="cpu" if cpu_engine else None, tried=tuple(search.tried))
    variable = found.variable
    setting = f"{variable}={env[variable]}" if variable else None
    if setting and found.seen.note:
        search.tried.append(f"{setting}: {found.seen.note}")
    devices = found.seen.devices
    if not devices:
        reason = setting or "MIG is on and no slice exists"
        search.tried.append(f"of {len(found.all)} GPUs here none is visible: {reason}")
        return GpuProbe(
            device="cpu" if cpu_engine else None, total=len(found.all), visible=setting, tried=tuple(search.tried)
        )
    flashinfer, triton_kernels = _packages(search, found.vendor)
    piece = found.seen.slice
    return GpuProbe(
        vendor=found.vendor,
        device="cpu" if cpu_engine else found.device,
        names=tuple(device.name or "unknown" for device in devices),
        memory_mib=found.memory_mib,
        visible_memory_mib=piece.memory_mib if piece else smallest(devices) or found.memory_mib,
        compute_capability=devices[0].capability,
        count=len(devices),
        total=len(found.all),
        mig=piece is not None or devices[0].mig,
        visible=setting,
        flashinfer=flashinfer,
        triton_kernels=triton_kernels,
        tried=tuple(search.tried),
    )


def _packages(search: Search, vendor: str) -> tuple[bool, bool]:
    """Returns whether SGLang would find (flashinfer, triton_kernels) in the engine's environment."""
    from sglang_hydra.facts.installed import find_package

    cuda = vendor == "nvidia"
    if find_package("sglang", search.paths):
        flashinfer = cuda and find_package("flashinfer", search.paths)
        triton_kernels = find_package("triton_kernels", search.paths)
    else:
        # The packages of SGLang's CUDA install; see conf/gpu.
        flashinfer = triton_kernels = cuda
        if cuda:
            search.tried.append(
                "no SGLang in the engine's environment: flashinfer and triton_kernels are assumed, as its CUDA install"
                " brings them"
            )
    if flashinfer and search.env.get("SGLANG_IS_FLASHINFER_AVAILABLE", "true").lower() not in ("true", "1"):
        search.tried.append("SGLANG_IS_FLASHINFER_AVAILABLE says that flashinfer is not to be used")
        flashinfer = False
    return flashinfer, triton_kernels


@lru_cache(maxsize=1)
def machine() -> GpuProbe:
    """Probes this machine and environment, once in a process."""
    return probe_gpu()
