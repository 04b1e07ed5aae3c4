"""What tensors occupy once PyTorch has allocated them on a GPU.

PyTorch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp) asks the driver for 2 MiB at a time for tensors of
up to 1 MiB, for 20 MiB at a time for tensors below 10 MiB, and rounds larger ones up to 2 MiB. SGLang logs the memory
that was asked for: a tensor of 12.5 MiB in each of 64 layers shows as 96 MiB more than the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

MIB = 1 << 20
_SMALL, _MEDIUM = 1 * MIB, 10 * MIB
_SEGMENT, _ROUND = 20 * MIB, 2 * MIB


class Allocations:
    """Tensors to be allocated: bytes of each size, and how many."""

    __slots__ = ("_medium", "lost")

    def __init__(self) -> None:
        self.lost = 0.0
        self._medium: dict[float, int] = {}

    def add(self, size: float, number: int) -> None:
        if size >= _MEDIUM:
            self.lost += (-size % _ROUND) * number
        elif size > _SMALL:
            self._medium[size] = self._medium.get(size, 0) + number

    def overhead(self) -> float:
        """Bytes that the segments hold beyond the tensors themselves."""
        return self.lost + _packed(self._medium) - sum(size * number for size, number in self._medium.items())


def _packed(tensors: Mapping[float, int]) -> float:
    """Bytes of the 20 MiB segments that hold ``tensors``: large ones first, small ones in the gaps that they leave. The
    last segment of a size counts in part, because others fill it up."""
    segments = 0.0
    gaps: dict[float, float] = {}
    for size in sorted(tensors, reverse=True):
        left = float(tensors[size])
        for gap in sorted(gaps):
            each = int(gap // size)
            if each == 0 or left <= 0:
                continue
            used = min(gaps[gap], left / each)
            gaps[gap] -= used
            _add(gaps, gap - each * size, used)
            left -= used * each
        if left > 0:
            each = int(_SEGMENT // size)
            segments += left / each
            _add(gaps, _SEGMENT - each * size, left / each)
    return segments * _SEGMENT


def _add(gaps: dict[float, float], gap: float, number: float) -> None:
    if gap > _SMALL:
        gaps[gap] = gaps.get(gap, 0.0) + number
