"""Asks NVIDIA's library for the health of every GPU: memory and who holds it, modes, errors, links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sglang_hydra.facts.nvml import MIB, NoNvml, ask_nvml, nvml_library, slices_of, text_of
from sglang_hydra.run.doctor.machine_state import Gpu, Holder, Nvidia, Pair

_PCI = Path("/sys/bus/pci/devices")
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"  # display controllers, with and without an output

# The library's own numbers (nvml.h), spelled out here: the Python package has one of them as a tuple.
_PEER_READ, _PEER_NVLINK = 0, 2
_PEER_OBSTACLES = {
    0: "",
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "the path between them crosses an I/O hub",
    4: "it is switched off in the driver's settings",
    5: "it is not supported",
}
_PATHS = {
    0: "on one board",
    10: "over one PCIe switch",
    20: "over several PCIe switches",
    30: "over a PCIe host bridge",
    40: "within one NUMA node",
    50: "across the CPU sockets",
}
_COMPUTE_MODES = {0: "default", 1: "exclusive", 2: "prohibited", 3: "exclusive"}
_FABRIC_STATES = {1: "not started", 2: "in progress", 3: "ready"}


def survey_nvidia(pci: Path = _PCI) -> Nvidia:
    """The NVIDIA GPUs of this machine, whatever a process is allowed to see. Never raises."""
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
    handles: list[Any] = []
    gpus = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handles.append(nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError as failure:
            handles.append(None)
            gpus.append(Gpu(index, problem=str(failure)))
        else:
            gpus.append(_gpu(nvml, index, handles[-1]))
    driver = ask_nvml(nvml, "nvmlSystemGetDriverVersion")
    cuda = ask_nvml(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    return Nvidia(
        driver=text_of(driver),
        cuda=(cuda // 1000, cuda % 1000 // 10) if cuda else None,
        gpus=tuple(gpus),
        pairs=tuple(_pairs(nvml, handles)),
        on_bus=on_bus,
    )


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    memory = ask_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
    mode = ask_nvml(nvml, "nvmlDeviceGetMigMode", handle)
    remapped = ask_nvml(nvml, "nvmlDeviceGetRemappedRows", handle)
    persistence = ask_nvml(nvml, "nvmlDeviceGetPersistenceMode", handle)
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
        persistence=None if persistence is None else bool(persistence),
        compute_mode=_COMPUTE_MODES.get(ask_nvml(nvml, "nvmlDeviceGetComputeMode", handle)),
        # Uncorrected errors since the driver was loaded; the counts over a card's life say nothing about today.
        ecc_errors=ask_nvml(nvml, "nvmlDeviceGetTotalEccErrors", handle, 1, 0),
        remap_pending=bool(remapped[2]) if remapped else None,
        remap_failed=bool(remapped[3]) if remapped else None,
        fabric=_fabric(nvml, handle),
    )


def _holders(nvml: Any, handle: Any) -> tuple[Holder, ...] | None:
    """The processes with a CUDA context there; None where the driver does not tell."""
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
    """The program alone: what follows it on a command line may hold a key."""
    words = (name or "").split()
    return os.path.basename(words[0]) if words else None


def _fabric(nvml: Any, handle: Any) -> str | None:
    """The state of the NVSwitch fabric that a GPU belongs to; None where it has none or the library is too old."""
    import ctypes

    structure = getattr(nvml, "c_nvmlGpuFabricInfo_t", None)
    if structure is None:
        return None
    info = structure()
    asked = ask_nvml(nvml, "nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info))
    return None if asked is None else _FABRIC_STATES.get(info.state)


def _pairs(nvml: Any, handles: list[Any]) -> Iterator[Pair]:
    for first, one in enumerate(handles):
        for second, other in enumerate(handles[first + 1 :], first + 1):
            if one is None or other is None:
                continue
            peer = ask_nvml(nvml, "nvmlDeviceGetP2PStatus", one, other, _PEER_READ)
            nvlink = ask_nvml(nvml, "nvmlDeviceGetP2PStatus", one, other, _PEER_NVLINK)
            path = ask_nvml(nvml, "nvmlDeviceGetTopologyCommonAncestor", one, other)
            yield Pair(
                first,
                second,
                obstacle=None if peer is None else _PEER_OBSTACLES.get(peer),
                nvlink=None if nvlink is None else nvlink == 0,
                path=_PATHS.get(path),
            )
