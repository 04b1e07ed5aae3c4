"""How much memory a server may take here."""

from __future__ import annotations

from pathlib import Path

from sglang_hydra.planning.engines.base import Machine

_CGROUP = Path("/sys/fs/cgroup")


def read_machine(accelerator: str | None = None, accelerator_memory_bytes: int | None = None) -> Machine:
    """This machine, with the accelerator to use, if any, as the caller found it."""
    return Machine(free_memory_bytes(), accelerator, accelerator_memory_bytes)


def free_memory_bytes(cgroup: Path = _CGROUP) -> int | None:
    """The memory in bytes that a new process can take without swapping, a container's limit respected; None where the
    system tells nothing."""
    import psutil

    try:
        available = int(psutil.virtual_memory().available)
    except (psutil.Error, OSError, NotImplementedError):
        return None
    rest = _container_rest(cgroup)
    return available if rest is None else min(available, rest)


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
