"""Finds the preset of the probed GPUs, by device name and memory together."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.text.json_types import JsonObject

MEMORY_TOLERANCE = 0.05
"""Drivers, ECC and virtual functions change a card's total by a few percent; classes of one name differ by more."""

# Makers and brands: they distinguish no classes.
_BRANDS = frozenset(("nvidia", "amd", "intel", "huawei", "habana", "tesla", "geforce", "instinct"))


def recognise(probe: GpuProbe, presets: Mapping[str, JsonObject]) -> str | None:
    """Returns the option of the preset that fits the probed GPUs, or None. ``presets`` maps options to ``gpu`` nodes.

    A class fits when the chip's designation is the same (an H200 is no H20, a GB200 no B200) and the memory of the
    smallest visible GPU differs by at most 5 %. Among several, the name with most words in common wins, then the
    nearest memory, then the first of ``presets``. Vendor and compute capability must agree where both are known. A MIG
    slice, or GPUs of several kinds, fit no class."""
    memory = probe.visible_memory_mib
    if not probe.name or memory is None or probe.mig or len(set(probe.names)) > 1:
        return None
    fitting: dict[str, tuple[float, float]] = {}
    for option, preset in presets.items():
        declared = preset.get("memory_mib")
        if not declared or not _agrees(probe.vendor, preset.get("vendor")):
            continue
        capability = ".".join(map(str, probe.compute_capability or ())) or None
        if not _agrees(capability, preset.get("compute_capability")):
            continue
        distance = abs(memory - float(declared)) / float(declared)
        likeness = max((_likeness(probe.name, name) for name in preset.get("device_names") or ()), default=0.0)
        if likeness > 0 and distance <= MEMORY_TOLERANCE:
            fitting[option] = (-likeness, distance)
    return min(fitting, key=fitting.__getitem__) if fitting else None


def _likeness(first: str, second: str) -> float:
    """Returns 0 for different chips, else the share of common words; 1 for the same name."""
    if not _chip(first) or _chip(first) != _chip(second):
        return 0.0
    ours, theirs = set(_words(first)), set(_words(second))
    return len(ours & theirs) / len(ours | theirs)


def _words(text: str) -> list[str]:
    # Ascend's runtime joins the family and the chip in one word: Ascend910B3.
    words = re.findall(r"[a-z0-9]+", text.lower().replace("ascend", " "))
    return [word for word in words if word not in _BRANDS]


def _chip(text: str) -> str:
    """Returns the chip's designation: the first word with a digit (h100, 4090, mi300x)."""
    return next((word for word in _words(text) if any(letter.isdigit() for letter in word)), "")


def _agrees(seen: str | None, declared: str | None) -> bool:
    return seen is None or declared is None or seen == declared
