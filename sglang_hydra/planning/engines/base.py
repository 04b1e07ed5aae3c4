"""What an engine is: a server that can run a plan, described by values and started by ``sglang_hydra.run.launch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject


class Availability(NamedTuple):
    """Whether an interpreter's environment has an engine. ``missing`` says in a sentence what it has not."""

    ok: bool
    version: str | None = None
    missing: str | None = None


class Machine(NamedTuple):
    """This machine as an engine would find it. Memory in bytes, None where it is not known.

    ``accelerator`` is the torch device to use (``cuda``, ``xpu``, ``mps``), None for the CPU;
    ``accelerator_memory_bytes`` is what the smallest of them has free.
    """

    memory_bytes: int | None
    accelerator: str | None = None
    accelerator_memory_bytes: int | None = None


@dataclass(frozen=True)
class EngineRequest:
    """What is to be served. ``intent`` holds the arguments asked for by name, ``model_path`` and a drawn seed
    included; ``python`` is the interpreter that has the engine, None for ours; ``host`` and ``port`` are where the
    server will listen; ``env`` is added to its environment. ``version`` is the release to serve with, None for the one
    whose arguments these are."""

    intent: JsonObject
    python: str | None
    host: str
    port: int
    env: Mapping[str, str] = field(default_factory=dict)
    machine: Machine = field(default_factory=lambda: Machine(None))
    version: str | None = None


@dataclass(frozen=True)
class Command:
    """A server's command line as a list, the variables to add to its environment, and a key that stays out of both.

    ``shown`` is what a person would type for the same server, without the key.
    """

    argv: Sequence[str]
    shown: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    secret: str | None = field(default=None, repr=False)


class Engine(Protocol):
    """One server program. ``health_path`` answers 200 when the server can serve, within ``health_timeout_s`` seconds.
    ``used_fields`` are the arguments that it obeys, None for all. ``milestones`` maps a text in its output to the words
    for how far it is.
    """

    name: str
    health_path: str
    health_timeout_s: float
    used_fields: frozenset[str] | None
    milestones: Mapping[str, str]

    def available(self, python: str | None) -> Availability:
        """Reads from package metadata whether ``python`` (None: ours) has this engine; imports nothing."""

    def obstacle(self, machine: Machine, weights_bytes: int | None) -> str | None:
        """Returns why weights of this size cannot be served by this engine here, in a clause; None if they can."""

    def findings(self, request: EngineRequest) -> list[Finding]:
        """Returns what of the request this engine refuses or does not use."""

    def command(self, request: EngineRequest) -> Command:
        """Returns the command that serves the request."""


_CGROUP = Path("/sys/fs/cgroup")


def read_machine(accelerator: str | None = None, accelerator_memory_bytes: int | None = None) -> Machine:
    """Reads this machine, with the accelerator to use, if any, as the caller found it."""
    return Machine(free_memory_bytes(), accelerator, accelerator_memory_bytes)


def free_memory_bytes(cgroup: Path = _CGROUP) -> int | None:
    """Returns the memory in bytes that a new process can take without swapping, a container's limit respected; None
    where the system tells nothing."""
    import psutil

    try:
        available = int(psutil.virtual_memory().available)
    except (psutil.Error, OSError, NotImplementedError):
        return None
    rest = _container_rest(cgroup)
    return available if rest is None else min(available, rest)


def _container_rest(cgroup: Path) -> int | None:
    """Returns what a cgroup (version 2) leaves: its limit less what is used and cannot be given back."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        stat = (cgroup / "memory.stat").read_text().split()
    except (OSError, ValueError):
        return None
    cache = int(stat[stat.index("inactive_file") + 1]) if "inactive_file" in stat else 0
    return max(0, limit - max(0, used - cache))
