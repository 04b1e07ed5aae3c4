"""Asks NVIDIA's library for the health of every GPU: memory and who holds it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sglang_hydra.facts.nvml import MIB, NoNvml, ask_nvml, nvml_library, slices_of, text_of
from sglang_hydra.run.doctor.machine_state import Gpu, Holder, Nvidia

_PCI = Path("/sys/bus/pci/devices")
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"  # display controllers, with and without an output


def survey_nvidia(pci: Path = _PCI) -> Nvidia:
    """Finds the NVIDIA GPUs of this machine, whatever a process is allowed to see. Never raises."""
    on_bus = count_on_bus(pci)
    try:
        with nvml_library() as nvml:
            return _survey(nvml, on_bus)
    except NoNvml as failure:
        return Nvidia(str(failure), on_bus=on_bus)


def count_on_bus(pci: Path = _PCI) -> int:
    """Counts NVIDIA's graphics processors on the PCI bus, also those without a driver."""
    try:
        return sum(1 for device in pci.iterdir() if _is_nvidia_gpu(device))
    except OSError:
        return 0


def _is_nvidia_gpu(device: Path) -> bool:
    try:
        vendor = (device / "vendor").read_text().strip()
        return vendor == _NVIDIA_VENDOR and (device / "class").read_text().startswith(_DISPLAY_CLASS)
    except OSError:
        return False


def _survey(nvml: Any, on_bus: int) -> Nvidia:
    gpus = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as failure:
            gpus.append(Gpu(index, problem=str(failure)))
        else:
            gpus.append(_gpu(nvml, index, handle))
    driver = ask_nvml(nvml, "nvmlSystemGetDriverVersion")
    cuda = ask_nvml(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    return Nvidia(
        driver=text_of(driver),
        cuda=(cuda // 1000, cuda % 1000 // 10) if cuda else None,
        gpus=tuple(gpus),
        on_bus=on_bus,
    )


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    memory = ask_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
    mode = ask_nvml(nvml, "nvmlDeviceGetMigMode", handle)
    return Gpu(
        number=index,
        name=text_of(ask_nvml(nvml, "nvmlDeviceGetName", handle)),
        uuid=text_of(ask_nvml(nvml, "nvmlDeviceGetUUID", handle)),
        total_mib=memory.total / MIB if memory else None,
        used_mib=memory.used / MIB if memory else None,
        free_mib=memory.free / MIB if memory else None,
        capability=ask_nvml(nvml, "nvmlDeviceGetCudaComputeCapability", handle),
        mig=bool(mode and mode[0]),
        slices=slices_of(nvml, handle),
        holders=_holders(nvml, handle),
    )


def _holders(nvml: Any, handle: Any) -> tuple[Holder, ...] | None:
    """Returns the processes with a CUDA context there; None where the driver does not tell."""
    running = ask_nvml(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
    if running is None:
        return None
    holders = []
    for process in running:
        name = text_of(ask_nvml(nvml, "nvmlSystemGetProcessName", process.pid))
        used = process.usedGpuMemory
        holders.append(Holder(process.pid, _program(name), None if used is None else used / MIB))
    return tuple(holders)


def _program(name: str | None) -> str | None:
    """Returns the program alone: what follows it on a command line may hold a key."""
    words = (name or "").split()
    return os.path.basename(words[0]) if words else None
