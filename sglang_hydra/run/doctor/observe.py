"""Observes this machine once, for all checks. It judges nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sglang_hydra.facts.hub import cache_root
from sglang_hydra.facts.nvml import MIB, NoNvml, ask_nvml, nvml_library, slices_of, text_of
from sglang_hydra.run.doctor import model_files
from sglang_hydra.run.doctor.machine_state import Examinee, Gpu, Holder, Interpreter, Nvidia, Space, World
from sglang_hydra.run.doctor.network import rdma_ports
from sglang_hydra.run.launch.port import port_obstacle

_SHM = "/dev/shm"
_ROOT = Path("/")
_INFINIBAND, _PEER_MEMORY = Path("/sys/class/infiniband"), Path("/sys/module/nvidia_peermem")
_CONTAINER_MARKS = (("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("lxc", "lxc"))


def space(path: str) -> Space:
    """Returns the disk under ``path``, and whether this user may write there, or in the nearest existing parent.

    Writes nothing: ``access`` reports both a read-only mount and missing rights."""
    wanted = existing = os.path.abspath(os.path.expanduser(path))
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    writable = os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)
    try:
        figures = shutil.disk_usage(existing)
    except OSError:
        return Space(wanted, writable=writable)
    return Space(wanted, figures.total, figures.free, writable)


def shared_memory(path: str = _SHM) -> Space | None:
    """Returns the shared memory file system, or None without one, as on systems other than Linux."""
    return space(path) if os.path.isdir(path) else None


def container(env: Mapping[str, str], root: Path = _ROOT) -> str | None:
    """Returns the kind of container around this process, or None if none is visible from inside."""
    if "KUBERNETES_SERVICE_HOST" in env:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in env or "SINGULARITY_CONTAINER" in env:
        return "apptainer"
    if (root / "run" / ".containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    try:
        groups = (root / "proc" / "1" / "cgroup").read_text()
    except (OSError, ValueError):
        groups = ""
    return next((kind for mark, kind in _CONTAINER_MARKS if mark in groups), env.get("container") or None)


def job(env: Mapping[str, str]) -> str | None:
    """Returns the batch job of this process, as ``Slurm job 12``, or None."""
    for name, label in (("SLURM_JOB_ID", "Slurm"), ("PBS_JOBID", "PBS"), ("LSB_JOBID", "LSF")):
        if re.fullmatch(r"[\w.\[\]-]+", env.get(name, "")):
            return f"{label} job {env[name]}"
    return None


def observe(env: Mapping[str, str], request: Examinee) -> World:
    """Observes the machine as a server with the environment ``env`` would find it."""
    from sglang_hydra.facts.probe import probe_gpu

    nvidia = survey_nvidia()
    model, ask = request.model_path, partial(model_files.ask_hub, access=request.access)
    return World(
        env=env,
        request=request,
        nvidia=nvidia,
        # Only without an NVIDIA GPU: the probes of other vendors run their programs.
        other=None if nvidia.gpus else probe_gpu(env, python=request.python),
        shm=shared_memory(),
        container=container(env),
        job=job(env),
        interpreter=read_interpreter(request.python),
        weights=space(request.download_dir or cache_root(env)),
        model=model_files.look_for_model(model, env, request.download_dir, ask=ask) if model else None,
        obstacle=port_obstacle(request.host, request.port),
        rdma=rdma_ports(_INFINIBAND) if request.transfer else (),
        peer_memory=_PEER_MEMORY.is_dir(),
    )


def read_interpreter(python: str | None) -> Interpreter:
    """Reads the environment of ``python`` (None: this interpreter)."""
    from sglang_hydra.facts.environments import find_python
    from sglang_hydra.facts.installed import installed, interpreter_paths, torch_build

    packages = installed(python)
    build = None if packages.problem else torch_build(interpreter_paths(python))
    return Interpreter(find_python(python), packages.versions, build, packages.problem)


_PCI = Path("/sys/bus/pci/devices")
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"  # display controllers, with and without an output


def survey_nvidia(pci: Path = _PCI) -> Nvidia:
    """Finds the NVIDIA GPUs of this machine, regardless of CUDA_VISIBLE_DEVICES. Never raises."""
    on_bus = sum(map(_is_nvidia_gpu, pci.glob("*")))
    try:
        with nvml_library() as nvml:
            return _survey(nvml, on_bus)
    except NoNvml as failure:
        return Nvidia(str(failure), on_bus=on_bus)


def _is_nvidia_gpu(device: Path) -> bool:
    """Returns whether a PCI device is a graphics processor of NVIDIA, with or without a driver."""
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
    number = ask_nvml(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    cuda = (number // 1000, number % 1000 // 10) if number else None
    return Nvidia(None, text_of(ask_nvml(nvml, "nvmlSystemGetDriverVersion")), cuda, tuple(gpus), on_bus)


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
    """Returns the processes with a CUDA context on this GPU, or None when the driver does not list them."""
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
    """Returns the program's name without its arguments, because these may contain a key."""
    words = (name or "").split()
    return os.path.basename(words[0]) if words else None
