"""How much memory a server may take here."""

from __future__ import annotations

import os
from pathlib import Path

from sglang_hydra.planning.engines.base import Machine

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def read_machine(accelerator: str | None = None, accelerator_memory_bytes: int | None = None) -> Machine:
    """This machine, with the accelerator to use, if any, as the caller found it."""
    return Machine(free_memory_bytes(), accelerator, accelerator_memory_bytes)


def free_memory_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """The memory in bytes that a new process can take without swapping, a container's limit respected.

    Where the system does not tell what is free (macOS), half of what it has; None where it tells nothing.
    """
    bounds = [bound for bound in (_available(meminfo), _container_rest(cgroup)) if bound is not None]
    return min(bounds) if bounds else None


def _available(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError, AttributeError):
        return None


def _container_rest(cgroup: Path) -> int | None:
    """What a cgroup (version 2) leaves: its limit less what is used and cannot be given back."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        stat = (cgroup / "memory.stat").read_text().split()
    except (OSError, ValueError):
        return None
    cache = int(stat[stat.index("inactive_file") + 1]) if "inactive_file" in stat else 0
    return max(0, limit - max(0, used - cache))
