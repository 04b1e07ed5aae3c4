"""The facts of the GPUs of one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sglang_hydra.text.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The hardware as SGLang's own probes would report it, declared by a preset or read from the machine.

    ``device`` is torch's device string, None without an accelerator. ``memory_mib`` is the total memory of the smallest
    GPU in MiB as the vendor's tool reports it, None where SGLang would not know it (CPU, Intel XPU).
    ``compute_capability`` is CUDA's (major, minor), for AMD the gfx number's (9, 4). ``count`` is the number of GPUs on
    this node. ``flashinfer`` and ``triton_kernels`` say whether SGLang would find these packages. ``torch_cuda`` says
    whether torch.cuda can report a capability, None where unknown; ``device_name`` is the driver's name of a GPU
    (``NVIDIA H20``), which some releases check.

    ``extra`` holds facts that the rules do not read (bandwidth in GB/s, dense TFLOPS, sources)."""

    name: str
    vendor: str
    device: str | None
    memory_mib: float | None = None
    compute_capability: tuple[int, int] | None = None
    count: int | None = None
    flashinfer: bool = False
    triton_kernels: bool = False
    torch_cuda: bool | None = None
    device_name: str | None = None
    extra: JsonObject = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises TypeError for a compute capability in the presets' notation: the rules compare only tuples."""
        if isinstance(self.compute_capability, (str, int, float)):
            raise TypeError(f"compute_capability is (major, minor), as (9, 0), not {self.compute_capability!r}")

    @property
    def is_cuda(self) -> bool:
        """Returns whether it is NVIDIA CUDA, as SGLang's ``is_cuda()``."""
        return self.vendor == "nvidia"

    @property
    def is_hip(self) -> bool:
        """Returns whether it is AMD ROCm, as SGLang's ``is_hip()``; torch calls this device ``cuda`` too."""
        return self.vendor == "amd"

    @property
    def is_sm90(self) -> bool:
        """Returns whether it is Hopper, by major version: an RTX 5090 (12.0) is neither Hopper nor Blackwell."""
        return self.compute_capability is not None and self.compute_capability[0] == 9

    @property
    def is_sm100(self) -> bool:
        """Returns whether it is datacenter Blackwell (B200, GB200): major version 10."""
        return self.compute_capability is not None and self.compute_capability[0] == 10

    def capacity_mib(self, device: str | None) -> float | None:
        """Returns the memory in MiB that SGLang reads for ``device``; None where it does not query the hardware.

        On CUDA and ROCm machines SGLang queries the GPUs under any ``device``; Gaudi and Ascend only when ``device``
        names them (SGLang 0.5.2, ``utils.get_device_memory_capacity``)."""
        if self.is_cuda or self.is_hip or (device in ("hpu", "npu") and device == self.device):
            return self.memory_mib
        return None


class GpuClass(NamedTuple):
    """A GPU class of the catalog: its option (``gpu=name``), its facts and its arguments. Pair files know it by
    ``facts.name`` (``gpu_model/<gpu>-<model>.yaml``)."""

    name: str
    facts: GpuFacts
    args: JsonObject
