"""This machine's processor and memory, which a release reads when it serves on a CPU."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
from pathlib import Path

from sglang_hydra.text.json_types import JsonDict

_NODES = Path("/sys/devices/system/node")
_PROCESSORS = Path("/proc/cpuinfo")


@functools.cache
def host_facts() -> JsonDict:
    """Returns memory in MiB, NUMA nodes, cores per node, the architecture, and whether it has AMX; omits unreadable
    facts. Reads a few small files and starts nothing."""
    found: dict[str, object] = {"processor": platform.machine()}
    nodes = max(1, len(list(_NODES.glob("node[0-9]*"))))
    found |= {"numa_nodes": nodes, "cores_per_node": max(1, (os.cpu_count() or 1) // nodes)}
    with contextlib.suppress(OSError, ValueError):  # a system without these names
        found["memory_mib"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    with contextlib.suppress(OSError):  # no Linux
        found["amx"] = "amx_tile" in _PROCESSORS.read_text(encoding="utf-8", errors="replace")
    return found
