"""Finds the accelerators of this machine: by NVIDIA's library, rocminfo, hl-smi, or torch for all others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sglang_hydra.facts.nvml import MIB, NoNvml, ask_nvml, nvml_library, slices_of, text_of
from sglang_hydra.facts.visible_gpus import Device, Visible, visible_devices
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.json_types import JsonDict

_VENDORS = {"cuda": "nvidia", "xpu": "intel", "npu": "huawei", "hpu": "habana"}


def find_amd(search: Search) -> Found | None:
    """Finds the machine's AMD GPUs by rocminfo, where SGLang reads their memory, too; None if there are none."""

    text = search.run(["rocminfo"])  # rocminfo itself obeys ROCR_VISIBLE_DEVICES
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
    """Finds the machine's Gaudi cards by hl-smi, where SGLang reads their memory, too; None if there are none."""

    text = search.run(["hl-smi", "--query"])
    if text is None:
        return None
    devices = read_hl_smi(text)
    search.tried.append(f"hl-smi: {counted(devices)}")
    return Found("habana", "hpu", tuple(devices), Visible(tuple(devices)), smallest(devices)) if devices else None


def find_by_torch(search: Search) -> Found | None:
    """Finds accelerators that only torch knows (Ascend, Intel XPU), in a child process, if torch was built for one."""
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
    """Finds the machine's NVIDIA GPUs and those that CUDA_VISIBLE_DEVICES leaves visible; None if there are none."""
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
    """Returns the GPUs by NVIDIA's library, or None where it fails.

    The library's total (either version of its memory call) divided by 2**20 is nvidia-smi's ``memory.total``."""
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


_TOOL_TIMEOUT_S = 20.0
_TORCH_TIMEOUT_S = 120.0

# Runs in the engine's interpreter, for accelerators that only torch knows. -c puts the working directory first on
# the path; it is removed, because it may be an untrusted checkout with a torch.py.
_ASK_TORCH = """
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.util, json
import torch
for name in ("torch_npu", "habana_frameworks"):
    if importlib.util.find_spec(name):
        __import__(name if name == "torch_npu" else "habana_frameworks.torch.hpu")
found = {}
for kind in ("cuda", "xpu", "npu", "hpu"):
    part = getattr(torch, kind, None)
    if part is None or not part.is_available():
        continue
    found = {"device": kind, "count": part.device_count(), "name": part.get_device_name(0), "hip": torch.version.hip}
    if kind in ("cuda", "npu"):
        found["memory_mib"] = part.mem_get_info()[1] // 1024 // 1024
    if kind == "cuda":
        found["capability"] = part.get_device_capability()
    break
print(json.dumps(found))
"""


class Found(NamedTuple):
    """The accelerators of one vendor: all of them, and the visible ones."""

    vendor: str
    device: str
    all: tuple[Device, ...]
    seen: Visible
    memory_mib: float | None
    variable: str | None = None


class Search:
    """One probe: its environment, and a sentence for each way that was tried."""

    def __init__(self, env: Mapping[str, str], python: str | None, site_paths: Sequence[str] | None) -> None:
        self.env = env
        self.python = os.path.expanduser(python) if python else None
        self.tried: list[str] = []
        self._paths = tuple(site_paths) if site_paths is not None else None

    @property
    def paths(self) -> tuple[str, ...]:
        """Returns the import folders of the engine's interpreter."""
        if self._paths is None:
            from sglang_hydra.facts.installed import interpreter_paths

            self._paths = interpreter_paths(self.python)
        return self._paths

    def run(self, command: list[str], timeout: float = _TOOL_TIMEOUT_S) -> str | None:
        """Returns the output of ``command``; None if it is missing, fails or takes longer than ``timeout`` seconds.

        A failure adds its sentence to ``tried``; the caller adds one for a success."""
        import shutil
        import subprocess

        rocm = os.path.join(self.env.get("ROCM_PATH", "/opt/rocm"), "bin")  # not on PATH in AMD's own packages
        places = os.pathsep.join((self.env.get("PATH", os.defpath), rocm))
        path = shutil.which(command[0], path=places)
        if path is None:
            self.tried.append(f"{command[0]}: not found on PATH")
            return None
        try:
            done = subprocess.run(
                [path, *command[1:]],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=timeout,
                env=dict(self.env),
            )
        except subprocess.TimeoutExpired:
            self.tried.append(f"{command[0]}: no answer within {timeout:g} s")
            return None
        except OSError as failure:
            self.tried.append(f"{command[0]}: cannot be run ({failure})")
            return None
        if done.returncode != 0:
            reason = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
            self.tried.append(f"{command[0]}: exit status {done.returncode} ({reason})")
            return None
        return done.stdout

    def first_set(self, *names: str) -> str | None:
        """Returns the first of these variables in the environment, even an empty one; else None."""
        return next((name for name in names if name in self.env), None)


def ask_torch(search: Search) -> JsonDict:
    """Asks the engine's torch for the first kind of accelerator that it sees; empty if it sees none.

    Uses a child process, since importing torch takes seconds and may initialise a device. Keys: device, count, name,
    hip, and where torch knows them memory_mib (of the first) and capability."""
    import sys

    from sglang_hydra.facts.trust import may_start

    if not may_start(search.python):
        search.tried.append(f"torch: {search.python} was not asked, as a file names it")
        return {}
    text = search.run([search.python or sys.executable, "-c", _ASK_TORCH], _TORCH_TIMEOUT_S)
    return read_torch_answer(text) if text is not None else {}


def smallest(devices: Sequence[Device]) -> float | None:
    """Returns the smallest total memory in MiB; None where no device reports it."""
    return min((device.memory_mib for device in devices if device.memory_mib is not None), default=None)


def counted(devices: Sequence[Device]) -> str:
    """Describes the devices in a sentence: ``8 x NVIDIA H200 143771 MiB``."""
    if not devices:
        return "no GPU"
    kinds = sorted({f"{device.name or 'unnamed'} {device.memory_mib or 0:g} MiB" for device in devices})
    return f"{len(devices)} x {', '.join(kinds)}"


_NUMBER = re.compile(r"\d+(\.\d+)?")
_AFTER_GFX = 100
_AFTER_POOL = 5


def read_gfx(text: str) -> tuple[int, int] | None:
    """Converts AMD's architecture to the (major, minor) that torch reports: gfx942 is (9, 4), gfx90a (9, 0), gfx1100
    (11, 0)."""
    found = re.match(r"gfx(\d+)(\d)[0-9a-f](?![0-9a-f])", text)
    return (int(found[1]), int(found[2])) if found else None


def read_rocminfo(text: str) -> tuple[list[Device], list[float]]:
    """Returns the GPUs in rocminfo's output, and the pool sizes in MiB of which SGLang takes the smallest.

    SGLang takes the size in the first pool within 100 lines after any ``gfx`` name; the memory of a GPU here is that of
    its own agent."""
    lines = text.splitlines()
    return _rocm_agents(lines), _rocm_pools(lines)


def _rocm_agents(lines: list[str]) -> list[Device]:
    devices: list[Device] = []
    agent: dict[str, str] = {}
    pool = ""
    for line in [*lines, "Agent 0"]:
        if re.match(r"Agent \d+", line):
            if agent.get("Device Type") == "GPU":
                devices.append(
                    Device(
                        name=agent.get("Marketing Name") or agent.get("Name"),
                        uuid=agent.get("Uuid"),
                        memory_mib=_kib(agent.get("Size", "")),
                        capability=read_gfx(agent.get("Name", "")),
                    )
                )
            agent, pool = {}, ""
            continue
        key, _, value = (part.strip() for part in line.partition(":"))
        if key.startswith("Pool ") and key != "Pool Info":
            pool = key
        elif key != "Size" or pool == "Pool 1":
            agent.setdefault(key, value)
    return devices


def _rocm_pools(lines: list[str]) -> list[float]:
    near_gfx = _within(lines, "gfx", _AFTER_GFX)
    near_pool = _within(near_gfx, "Pool 1", _AFTER_POOL)
    sizes = (_kib(line.partition("Size:")[2].strip()) for line in near_pool if "Size:" in line)
    return [size for size in sizes if size is not None]


def _within(lines: list[str], mark: str, after: int) -> list[str]:
    """Returns the lines that contain ``mark``, each with the ``after`` lines that follow it."""
    kept, left = [], 0
    for line in lines:
        left = after + 1 if mark in line else left
        if left > 0:
            kept.append(line)
        left -= 1
    return kept


def _kib(text: str) -> float | None:
    """Converts ``200998912(0xbfb0000) KB`` to MiB."""
    found = _NUMBER.match(text)
    return float(found[0]) / 1024 if found else None


def read_hl_smi(text: str) -> list[Device]:
    """Reads the Gaudi cards from the log of ``hl-smi --query``. Its MB are MiB (a 96 GiB card shows 98304)."""
    devices: list[Device] = []
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "Product Name":
            devices.append(Device(name=value))
        elif key == "Total" and _NUMBER.match(value):
            size = float(value.split()[0])
            if devices and devices[-1].memory_mib is None:
                devices[-1] = devices[-1]._replace(memory_mib=size)
            else:
                devices.append(Device(name=None, memory_mib=size))
    return devices


def read_torch_answer(text: str) -> dict[str, object]:
    """Returns the last line that is a JSON object (libraries may print before it); empty if there is none."""

    for line in reversed(text.splitlines()):
        try:
            answer = read_json(line, "record")
        except ValueError:
            continue
        if isinstance(answer, dict):
            return answer
    return {}
