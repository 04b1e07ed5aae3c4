"""The observed state of a machine: plain values, None for unknown. Sizes are in bytes or MiB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sglang_hydra.facts.hub import OWN, Access
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.facts.visible_gpus import Device, Slice, Visible, visible_devices
from sglang_hydra.text.findings import Finding


class Examinee(NamedTuple):
    """The server to examine the machine for. ``python`` runs the engine (None: this interpreter), ``model_path`` is a
    folder, a file or a hub id, ``download_dir`` receives downloaded weights (None: the Hugging Face cache). ``device``
    and ``gpu`` are torch's device and the GPU class of the plan, None to use what is here. ``access`` says how the hub
    may be asked for the model. ``transfer`` is the backend that sends the KV cache to another server (None: none is
    sent), ``devices`` are the RDMA devices that the plan names for it."""

    python: str | None = None
    model_path: str | None = None
    host: str = "127.0.0.1"
    port: int = 30000
    download_dir: str | None = None
    device: str | None = None
    gpu: str | None = None
    access: Access = OWN
    transfer: str | None = None
    devices: str | None = None


class Holder(NamedTuple):
    """A process that holds GPU memory; in a container the id may be the host's."""

    pid: int
    name: str | None = None
    memory_mib: float | None = None


class Gpu(NamedTuple):
    """One NVIDIA GPU, numbered in PCI bus order. ``problem`` says why it does not answer; all else is None then.

    ``holders`` is None when the driver does not list them."""

    number: int
    name: str | None = None
    uuid: str | None = None
    total_mib: float | None = None
    used_mib: float | None = None
    free_mib: float | None = None
    capability: tuple[int, int] | None = None
    mig: bool = False
    slices: tuple[Slice, ...] = ()
    holders: tuple[Holder, ...] | None = None
    problem: str | None = None


class Nvidia(NamedTuple):
    """The NVIDIA side of the machine. ``cuda`` is the newest CUDA that the driver runs.

    ``problem`` says why NVIDIA's library cannot be asked. ``on_bus`` counts NVIDIA GPUs on the PCI bus; a container
    sees them there even without access to them."""

    problem: str | None = None
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()
    on_bus: int = 0


class Space(NamedTuple):
    """The disk under a folder, and whether this user may write there."""

    path: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    writable: bool | None = None


class RdmaPort(NamedTuple):
    """One port of an RDMA device. ``link`` is InfiniBand or Ethernet, ``gids`` are the indices of its RoCE v2 GIDs."""

    device: str
    number: str = "1"
    active: bool = True
    link: str = "InfiniBand"
    gids: tuple[int, ...] = ()


class Interpreter(NamedTuple):
    """The engine's environment, read without an import. ``torch_build`` maps cuda, hip and xpu to the version that
    torch was built for, or None. ``problem``: why nothing is known."""

    path: str | None = None
    versions: Mapping[str, str] = {}
    torch_build: Mapping[str, str | None] | None = None
    problem: str | None = None


class HubAnswer(NamedTuple):
    """The hub's answer on a model: open, gated, absent, silent (no answer) or not asked; ``why`` explains it."""

    state: str
    why: str = ""
    weight_bytes: int | None = None


class ModelFiles(NamedTuple):
    """The files of a model on this machine.

    ``kind`` is folder, file, cached, hub, remote or missing. ``config_problem`` says what is wrong with config.json.
    ``weight_bytes`` is the size that the checkpoint states. ``missing`` names listed weight files that do not exist,
    ``pointers`` those that are Git LFS pointers, ``unreadable`` files without read permission. ``token`` names the
    place of a Hugging Face token, never the token."""

    kind: str
    folder: str | None = None
    config_problem: str | None = None
    tokenizer: bool | None = None
    weight_bytes: int | None = None
    missing: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    token: str | None = None
    hub: HubAnswer | None = None

    @property
    def complete(self) -> bool:
        """Returns whether nothing must be downloaded."""
        return self.kind in ("folder", "file", "cached") and not (self.missing or self.pointers)


@dataclass(frozen=True)
class World:
    """Everything that the checks read. ``obstacle`` is why nobody can listen on the server's port.
    ``peer_memory`` is whether the module is loaded that lets RDMA devices read NVIDIA's GPU memory."""

    env: Mapping[str, str] = field(default_factory=dict)
    request: Examinee = field(default_factory=Examinee)
    nvidia: Nvidia = field(default_factory=Nvidia)
    other: GpuProbe | None = None
    shm: Space | None = None
    container: str | None = None
    job: str | None = None
    interpreter: Interpreter = field(default_factory=Interpreter)
    weights: Space | None = None
    model: ModelFiles | None = None
    obstacle: Finding | None = None
    rdma: tuple[RdmaPort, ...] = ()
    peer_memory: bool = False

    @property
    def seen(self) -> Visible:
        """Returns the NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves visible to a server."""
        # The index replaces the name, so that a chosen device leads back to its GPU.
        devices = [
            Device(str(place), gpu.uuid, gpu.total_mib, gpu.capability, gpu.mig, gpu.slices)
            for place, gpu in enumerate(self.nvidia.gpus)
        ]
        return visible_devices(self.env.get("CUDA_VISIBLE_DEVICES"), devices)

    @property
    def visible(self) -> tuple[Gpu, ...]:
        """Returns the GPUs of ``seen`` with all their facts."""
        return tuple(self.nvidia.gpus[int(device.name or 0)] for device in self.seen.devices)

    @property
    def accelerated(self) -> bool:
        """Returns whether a server would find an accelerator of any vendor."""
        return bool(self.visible) or (self.other is not None and self.other.found)
