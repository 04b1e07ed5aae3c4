"""Reads the host: shared memory, limits, memory, disks, container, tools. It states and does not judge."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sglang_hydra.run.doctor.machine_state import Limit, Memory, Space

_SHM = "/dev/shm"
_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_RDMA = Path("/sys/class/infiniband")
_ROOT = Path("/")
# Version 1 says "unlimited" with the largest number of whole pages.
_NO_LIMIT = 1 << 60
_CONTAINER_MARKS = (("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("lxc", "lxc"))
_CUDA_PLACE = "/usr/local/cuda"


def space(path: str) -> Space:
    """The disk under ``path``, and whether this user may write there, or make it in the nearest folder that exists.

    Nothing is written: ``access`` reports both a read-only mount and missing rights.
    """
    wanted = os.path.abspath(os.path.expanduser(path))
    existing = wanted
    while not os.path.exists(existing):
        parent = os.path.dirname(existing)
        if parent == existing:
            return Space(wanted)
        existing = parent
    writable = os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)
    try:
        figures = os.statvfs(existing)
    except (OSError, AttributeError):
        return Space(wanted, existing, writable=writable)
    unit = figures.f_frsize
    return Space(wanted, existing, figures.f_blocks * unit, figures.f_bavail * unit, writable)


def shared_memory(path: str = _SHM) -> Space | None:
    """The shared memory file system; None where there is none, as on systems other than Linux."""
    return space(path) if os.path.isdir(path) else None


def limit(name: str) -> Limit | None:
    """A resource limit of this process by its name (``RLIMIT_NOFILE``); a server started from here inherits it."""
    try:
        import resource
    except ImportError:
        return None
    number = getattr(resource, name, None)
    if number is None:
        return None
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(number))
    return Limit(soft, hard)


def memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> Memory:
    """The host's memory in bytes, a container's limit apart."""
    from sglang_hydra.planning.engines.machine import free_memory_bytes

    total = _meminfo(proc / "meminfo", "MemTotal")
    bound = memory_limit(proc / "self" / "cgroup", cgroup)
    available = free_memory_bytes(proc / "meminfo", cgroup)
    if bound is not None and available is not None:
        available = min(available, bound)
    return Memory(total, available, bound)


def memory_limit(membership: Path, cgroup: Path) -> int | None:
    """The smallest memory limit in bytes of this process's control group and those above it, of either version.

    ``membership`` is /proc/self/cgroup, ``cgroup`` where the groups are mounted. In a container its own group is
    often mounted at the top, so the top is always read.
    """
    bounds = []
    for folder, name in _memory_groups(membership, cgroup):
        while True:
            bound = _number(folder / name)
            if bound is not None and bound < _NO_LIMIT:
                bounds.append(bound)
            if folder in (cgroup, cgroup / "memory") or cgroup not in folder.parents:
                break
            folder = folder.parent
    return min(bounds, default=None)


def _memory_groups(membership: Path, cgroup: Path) -> list[tuple[Path, str]]:
    groups = [(cgroup, "memory.max"), (cgroup / "memory", "memory.limit_in_bytes")]
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return groups
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if not controllers:
            groups.append((cgroup / place.lstrip("/"), "memory.max"))
        elif "memory" in controllers.split(","):
            groups.append((cgroup / "memory" / place.lstrip("/"), "memory.limit_in_bytes"))
    return groups


def rdma_devices(folder: Path = _RDMA) -> tuple[str, ...]:
    """The network adapters that can do RDMA (InfiniBand, RoCE, EFA), by name."""
    try:
        return tuple(sorted(entry.name for entry in folder.iterdir()))
    except OSError:
        return ()


def container(env: Mapping[str, str], root: Path = _ROOT) -> str | None:
    """Returns the kind of container that this process runs in; None where none is visible from within."""
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
    """The batch job that this process belongs to, as ``Slurm job 12``; None for none."""
    for name, label in (("SLURM_JOB_ID", "Slurm"), ("PBS_JOBID", "PBS"), ("LSB_JOBID", "LSF")):
        if re.fullmatch(r"[\w.\[\]-]+", env.get(name, "")):
            return f"{label} job {env[name]}"
    return None


def tools(env: Mapping[str, str]) -> dict[str, str | None]:
    """The programs that build kernels at run time, each with its path or None: a C compiler, nvcc and ninja."""
    import shutil

    path = env.get("PATH", os.defpath)

    def first(*names: str) -> str | None:
        return next((found for name in names if name and (found := shutil.which(name, path=path))), None)

    homes = [env.get("CUDA_HOME"), env.get("CUDA_PATH"), _CUDA_PLACE]
    places = [os.path.join(home, "bin", "nvcc") for home in homes if home]
    return {
        "cc": first(env.get("CC", ""), "gcc", "clang", "cc"),
        "nvcc": first(*places[:-1], "nvcc", places[-1]),
        "ninja": first("ninja"),
    }


def _meminfo(path: Path, key: str) -> int | None:
    try:
        for line in path.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # "max" says that there is no limit
