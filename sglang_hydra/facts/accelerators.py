"""Finds the accelerators of this machine: by NVIDIA's library, by rocminfo, by hl-smi, and what only torch knows."""

from __future__ import annotations

from typing import Any

from sglang_hydra.facts.accelerator_search import Found, Search, ask_torch, counted, smallest
from sglang_hydra.facts.nvml import MIB, NoNvml, ask_nvml, nvml_library, slices_of, text_of
from sglang_hydra.facts.visible_gpus import Device, Visible, visible_devices

_VENDORS = {"cuda": "nvidia", "xpu": "intel", "npu": "huawei", "hpu": "habana"}


def find_amd(search: Search) -> Found | None:
    """The machine's AMD GPUs by rocminfo, which is where SGLang reads their memory; None if there are none."""
    from sglang_hydra.facts.vendor_tools import read_rocminfo

    text = search.run(["rocminfo"])  # which obeys ROCR_VISIBLE_DEVICES itself
    if text is None:
        return None
    devices, pools = read_rocminfo(text)
    search.tried.append(f"rocminfo: {counted(devices)}")
    if not devices:
        return None
    variable = search.first_set("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    seen = visible_devices(search.env[variable] if variable else None, devices)
    return Found("amd", "cuda", tuple(devices), seen, min(pools, default=None), variable)


def find_habana(search: Search) -> Found | None:
    """The machine's Gaudi cards by hl-smi, which is where SGLang reads their memory; None if there are none."""
    from sglang_hydra.facts.vendor_tools import read_hl_smi

    text = search.run(["hl-smi", "--query"])
    if text is None:
        return None
    devices = read_hl_smi(text)
    search.tried.append(f"hl-smi: {counted(devices)}")
    return Found("habana", "hpu", tuple(devices), Visible(tuple(devices)), smallest(devices)) if devices else None


def find_by_torch(search: Search) -> Found | None:
    """What only torch knows (Ascend, Intel XPU): a child process, and only for a torch that was built for one."""
    from sglang_hydra.facts.installed import find_package, torch_build

    build = torch_build(search.paths)
    if build is None:
        search.tried.append("torch: not installed in the engine's environment")
        return None
    plugins = [name for name in ("torch_npu", "habana_frameworks") if find_package(name, search.paths)]
    if not plugins and not build["xpu"] and not build["hip"]:
        search.tried.append("torch: the installed one was built for no other accelerator")
        return None
    answer = ask_torch(search)
    device = answer.get("device")
    if device not in _VENDORS:
        search.tried.append("torch: it sees no accelerator")
        return None
    one = Device(
        name=answer.get("name"),
        memory_mib=float(answer["memory_mib"]) if answer.get("memory_mib") else None,
        capability=tuple(answer["capability"]) if answer.get("capability") else None,
    )
    devices = (one,) * int(answer.get("count") or 1)
    search.tried.append(f"torch: {counted(devices)} as {device}")
    vendor = "amd" if answer.get("hip") else _VENDORS[device]
    return Found(vendor, device, devices, Visible(devices), one.memory_mib)


def find_nvidia(search: Search) -> Found | None:
    """The machine's NVIDIA GPUs and what CUDA_VISIBLE_DEVICES leaves of them; None if there are none."""
    devices = _nvml(search)
    if not devices:
        return None
    variable = search.first_set("CUDA_VISIBLE_DEVICES")
    seen = visible_devices(search.env[variable] if variable else None, devices)
    ordered = search.env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if variable and not ordered and len({device.name for device in devices}) > 1:
        search.tried.append("indices are taken in PCI bus order; CUDA counts so only with CUDA_DEVICE_ORDER=PCI_BUS_ID")
    memory = smallest(devices)
    if memory is None and seen.devices:
        asked = ask_torch(search).get("memory_mib")
        memory = float(asked) if asked else seen.slice.memory_mib if seen.slice else None
        shown = f"{memory:g} MiB from torch or the slice" if memory else "unknown"
        search.tried.append(f"no GPU reports its memory, which is usual under MIG: {shown}")
    elif seen.slice and memory != seen.slice.memory_mib:
        part = f"{seen.slice.memory_mib or 0:g} of {memory or 0:g} MiB"
        search.tried.append(f"a MIG slice with {part} is visible; SGLang reads the whole GPU's")
    return Found("nvidia", "cuda", tuple(devices), seen, memory, variable)


def _nvml(search: Search) -> list[Device] | None:
    """The GPUs by NVIDIA's library; None where it cannot be used.

    The library's total (either version of its memory call) divided by 2**20 is nvidia-smi's ``memory.total``.
    """
    try:
        with nvml_library() as nvml:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            devices = [_nvml_device(nvml, handle) for handle in handles]
    except NoNvml as failure:
        search.tried.append(f"NVML: {failure}")
        return None
    search.tried.append(f"NVML: {counted(devices)}")
    return devices


def _nvml_device(nvml: Any, handle: Any) -> Device:
    memory = ask_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
    mode = ask_nvml(nvml, "nvmlDeviceGetMigMode", handle)
    return Device(
        name=text_of(ask_nvml(nvml, "nvmlDeviceGetName", handle)),
        uuid=text_of(ask_nvml(nvml, "nvmlDeviceGetUUID", handle)),
        memory_mib=float(memory.total // MIB) if memory else None,
        capability=ask_nvml(nvml, "nvmlDeviceGetCudaComputeCapability", handle),
        mig=bool(mode and mode[0]),
        slices=slices_of(nvml, handle),
    )
