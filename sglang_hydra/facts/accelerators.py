"""The accelerators of this machine that are not NVIDIA's: by rocminfo, by hl-smi, and what only torch knows."""

from __future__ import annotations

from sglang_hydra.facts.accelerator_search import Found, Search, ask_torch, counted, smallest
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
