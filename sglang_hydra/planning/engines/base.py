"""Defines an engine: a server that can run a plan, described by values and started by ``sglang_hydra.run.launch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject


class Availability(NamedTuple):
    """Whether an interpreter's environment has an engine. ``missing`` names the missing part in a sentence."""

    ok: bool
    version: str | None = None
    missing: str | None = None


class Machine(NamedTuple):
    """This machine as an engine finds it. Memory in bytes, None if unknown.

    ``accelerator`` is the torch device to use (``cuda``, ``xpu``, ``mps``), None for the CPU;
    ``accelerator_memory_bytes`` is the free memory of the smallest one."""

    memory_bytes: int | None
    accelerator: str | None = None
    accelerator_memory_bytes: int | None = None


@dataclass(frozen=True)
class EngineRequest:
    """A request to serve. ``intent`` holds the requested arguments by name, with ``model_path`` and a drawn seed;
    ``python`` is the engine's interpreter, None for ours; the server will listen on ``host`` and ``port``; ``env`` is
    added to its environment. ``version`` is the release to serve with, None for the release of these arguments."""

    intent: JsonObject
    python: str | None
    host: str
    port: int
    env: Mapping[str, str] = field(default_factory=dict)
    machine: Machine = field(default_factory=lambda: Machine(None))
    version: str | None = None


@dataclass(frozen=True)
class Command:
    """A server's command line as a list, the variables to add to its environment, and a key that is in neither.

    ``shown`` is the command that a person would type for the same server, without the key."""

    argv: Sequence[str]
    shown: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    secret: str | None = field(default=None, repr=False)


class Engine(Protocol):
    """One server program. ``health_path`` answers 200 when the server can serve, within ``health_timeout_s`` seconds.
    ``used_fields`` are the arguments that it obeys, None for all. ``milestones`` maps a text in its output to a
    progress message."""

    name: str
    health_path: str
    health_timeout_s: float
    used_fields: frozenset[str] | None
    milestones: Mapping[str, str]

    def available(self, python: str | None) -> Availability:
        """Reads from package metadata whether ``python`` (None: ours) has this engine; imports nothing."""

    def obstacle(self, machine: Machine, weights_bytes: int | None) -> str | None:
        """Returns why this engine cannot serve weights of this size here, in a clause, or None."""

    def findings(self, request: EngineRequest) -> list[Finding]:
        """Returns the findings on parts of the request that this engine refuses or ignores."""

    def command(self, request: EngineRequest) -> Command:
        """Returns the command that serves the request."""


_CGROUP = Path("/sys/fs/cgroup")


def read_machine(accelerator: str | None = None, accelerator_memory_bytes: int | None = None) -> Machine:
    """Reads this machine's free memory; the caller passes the accelerator, if any."""
    return Machine(free_memory_bytes(), accelerator, accelerator_memory_bytes)


def free_memory_bytes(cgroup: Path = _CGROUP) -> int | None:
    """Returns the memory in bytes that a new process can take without swapping, within a container's limit; None if
    unknown."""
    import psutil

    try:
        available = int(psutil.virtual_memory().available)
    except (psutil.Error, OSError, NotImplementedError):
        return None
    rest = _container_rest(cgroup)
    return available if rest is None else min(available, rest)


def _container_rest(cgroup: Path) -> int | None:
    """Returns the free bytes of a cgroup (version 2): its limit less the memory that cannot be reclaimed."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        stat = (cgroup / "memory.stat").read_text().split()
    except (OSError, ValueError):
        return None
    cache = int(stat[stat.index("inactive_file") + 1]) if "inactive_file" in stat else 0
    return max(0, limit - max(0, used - cache))
