"""What tensors occupy once PyTorch has allocated them on a GPU.

PyTorch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp) asks the driver for 2 MiB at a time for tensors of
up to 1 MiB, for 20 MiB at a time for tensors below 10 MiB, and rounds larger ones up to 2 MiB. A tensor takes the
smallest gap that holds it; what is left of a gap or of a segment is a gap for later ones where it is above 1 MiB.
SGLang logs the memory that was asked for: a tensor of 12.5 MiB in each of 64 layers shows as 96 MiB more than the
weights.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

MIB = 1 << 20
_SMALL, _MEDIUM = 1 * MIB, 10 * MIB
_SEGMENT, _ROUND = 20 * MIB, 2 * MIB


def lost_bytes(tensors: Iterable[tuple[float, int]]) -> float:
    """Bytes that the driver gives beyond ``tensors``: the tensors of layers that are alike, in the order in which a
    layer makes them, each with the number of layers that have it so. The gaps that are left at the end count as filled
    by others."""
    sizes = [(size, number) for size, number in tensors if size > _SMALL and number]
    least = min((size for size, _ in sizes), default=0.0)
    gaps: list[float] = []
    lost: list[float] = [0.0]
    seen: dict[tuple[float, ...], int] = {}
    alike = len({number for _, number in sizes}) == 1
    layers = max((number for _, number in sizes), default=0)
    for layer in range(layers):
        first = seen.setdefault(tuple(gaps), layer) if alike else layer
        if first < layer:  # from here on it repeats itself
            turns, rest = divmod(layers - layer, layer - first)
            return lost[layer] + turns * (lost[layer] - lost[first]) + lost[first + rest] - lost[first]
        more = sum(_place(size, gaps, least) for size, number in sizes if layer < number)
        lost.append(lost[layer] + more)
    return lost[layers]


def _place(size: float, gaps: list[float], least: float) -> float:
    """Takes ``size`` bytes of the smallest gap, or of a new segment; returns what of it no later tensor can take."""
    place = bisect_left(gaps, size)
    if place < len(gaps):
        left = gaps.pop(place) - size
    else:
        left = _SEGMENT - size if size < _MEDIUM else -size % _ROUND
    if left < least:
        return left
    insort(gaps, left)
    return 0.0
