"""A question to a release: the facts that go in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang_hydra.facts.gpu import GpuFacts

ASSUMED: Mapping[str, Any] = {
    "driver": "595.58.03", "cudnn": 91600, "nvml": False, "hip": "6.4", "processor": "x86_64", "amx": True,
    "numa_nodes": 1, "cores_per_node": 32, "hostname": "localhost",
}  # fmt: skip
"""Facts for machines that declare none: the driver that 0.5.23's own docstring has as its example, the cuDNN (9.16)
that SGLang asks for from 0.5.6 on, no NVML, which tells of an NVLink fabric, HIP 6.4, and a host that SGLang's CPU
engine is made for. An answer says which of them it used."""

FACTS = (
    *ASSUMED,
    *("cuda", "host_memory_mib", "imex", "infiniband", "packages", "torch_cuda"),
)
"""The facts of a machine that a person may declare; those of the GPU are its preset's."""

_DEVICES = {"nvidia": "cuda", "amd": "hip", "intel": "xpu", "habana": "hpu", "huawei": "npu"}
_CUDA = "12.8"


@dataclass(frozen=True)
class Case:
    """One command line on one machine.

    ``argv`` are the words behind the module's name. ``machine`` is what ``machine_facts`` makes. ``models`` has for
    each model path among the words the content of its config.json, or ``{"files": {name: text or content}}`` for
    several files. ``files`` has what else may be looked at by its absolute path: a text, a list of names for a folder,
    None for what is not there.
    """

    argv: tuple[str, ...]
    machine: Mapping[str, Any]
    models: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The case as the child reads it. Words of ``assumed`` that the machine declares are left to it."""
        machine = {"environment": {}, "assumed": dict(ASSUMED), **self.machine}
        return {
            "argv": list(self.argv),
            "machine": machine,
            "models": dict(self.models),
            "files": dict(self.files),
        }


def machine_facts(
    gpu: GpuFacts, environment: Mapping[str, str] | None = None, cuda: str | None = None, **more: Any
) -> dict[str, Any]:
    """The machine of a case. ``environment`` are the variables that the server would find, ``cuda`` the version that
    its torch is made for, ``more`` further facts: ``driver``, ``cudnn``, ``infiniband`` (a list of devices),
    ``packages`` (name to version, None for absent), ``hip``, ``processor``, ``seed``."""
    device = "none" if gpu.device is None else "cpu" if gpu.device == "cpu" else _DEVICES.get(gpu.vendor, "none")
    capability = gpu.compute_capability
    return {
        "device": device,
        "memory_mib": gpu.memory_mib,
        "capability": list(capability) if capability else None,
        "count": gpu.count,
        "name": gpu.device_name or gpu.name,
        "flashinfer": gpu.flashinfer,
        "triton_kernels": gpu.triton_kernels,
        "torch_cuda": gpu.torch_cuda,
        "cuda": cuda or _CUDA,
        "environment": dict(environment or {}),
        **more,
    }
