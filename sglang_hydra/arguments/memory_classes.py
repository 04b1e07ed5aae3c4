"""The classes of GPU memory in SGLang 0.5.2, with the reserved memory and the defaults of each."""

from __future__ import annotations

import math
from typing import NamedTuple


class MemoryClass(NamedTuple):
    """One row: GPUs with less than ``below_gib``, and not in a row above.

    SGLang keeps ``reserved_gib`` GiB for activations and CUDA graphs, plus 1 GiB per ``gpus_per_gib`` GPUs (None: no
    more). ``chunked_prefill_size`` is in tokens; ``graph_max_bs`` holds the largest batch captured as a CUDA graph with
    fewer than 4 GPUs in a tensor parallel group, and with 4 or more (None: the server decides)."""

    name: str
    below_gib: float
    reserved_gib: float
    gpus_per_gib: int | None
    chunked_prefill_size: int
    graph_max_bs: tuple[int, int] | None

    def reserved_mib(self, gpus: int) -> float:
        """Returns the MiB reserved on each of ``gpus`` GPUs. Exact to the bit: the order of operations is
        upstream's."""
        if self.gpus_per_gib is None:
            return self.reserved_gib * 1024
        return (self.reserved_gib + gpus / self.gpus_per_gib) * 1024


CLASSES = (
    MemoryClass("GPUs below 20 GiB", 20, 2.8, 10, 2048, (8, 80)),  # T4
    MemoryClass("GPUs of 20 to 35 GiB", 35, 2.8, 10, 2048, (8, 80)),  # A10, L4, RTX 4090 and 5090
    MemoryClass("GPUs of 35 to 90 GiB", 90, 9.5, 2, 8192, None),  # L40S, A100, H100
    MemoryClass("GPUs of 90 to 100 GiB", 100, 12, 2, 8192, None),  # H20
    MemoryClass("GPUs of 100 to 160 GiB", 160, 12, 2, 8192, None),  # H200
    MemoryClass("GPUs of 160 GiB and more", math.inf, 32, None, 16384, None),  # B200, MI300X
)


def class_of(memory_mib: float) -> MemoryClass:
    """Returns the row for a GPU with ``memory_mib`` MiB in total."""
    for row in CLASSES[:-1]:
        if memory_mib < row.below_gib * 1024:
            return row
    return CLASSES[-1]


CHUNK_WITHOUT_MEMORY = 4096  # tokens
