"""Which GPU class a text speaks of: an image's tag, a node's label, the name of an instance, a GPU's own name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

# Instance families of the clouds, by their own documentation of GPU instances:
# docs.aws.amazon.com/dlami/latest/devguide/gpu.html, cloud.google.com/compute/docs/gpus,
# learn.microsoft.com/azure/virtual-machines/sizes/overview.
_INSTANCES: Sequence[tuple[str, str]] = (
    (r"p4d\.\w+", "a100_40gb"),
    (r"p4de\.\w+", "a100_80gb"),
    (r"p5\.\w+", "h100"),
    (r"p5en\.\w+", "h200"),
    (r"p5e\.\w+", "h200"),
    (r"p6-b200\.\w+", "b200"),
    (r"p6-b300\.\w+", "b300"),
    (r"g4dn\.\w+", "t4"),
    (r"g5\.\w+", "a10"),
    (r"g6\.\w+", "l4"),
    (r"g6e\.\w+", "l40s"),
    (r"a2-highgpu-\w+", "a100_40gb"),
    (r"a2-ultragpu-\w+", "a100_80gb"),
    (r"a3-(?:high|mega|edge)gpu-\w+", "h100"),
    (r"a3-ultragpu-\w+", "h200"),
    (r"a4-highgpu-\w+", "b200"),
    (r"a4x-highgpu-\w+", "gb200"),
    (r"g2-standard-\w+", "l4"),
    (r"standard_nd\w*_h100_v5", "h100"),
    (r"standard_nd\w*_h200_v5", "h200"),
    (r"standard_nd\w*_mi300x_v5", "mi300x"),
    (r"standard_nd\w*_gb200_v6", "gb200"),
    (r"standard_nd\w*amsr_a100_v4", "a100_80gb"),
)
# Parts of tags and labels that are no class's own name. AMD's images are for an architecture (gfx942, gfx950).
_WORDS: Sequence[tuple[str, str]] = (
    (r"mi30x", "mi300x"),
    (r"mi35x", "mi355x"),
    (r"xeon", "cpu"),
    (r"a100[-_. ](?:\w+[-_. ]){0,2}40gb", "a100_40gb"),
    (r"a100[-_. ](?:\w+[-_. ]){0,2}80gb", "a100_80gb"),
    (r"tesla-t4", "t4"),
    (r"h100[-_. ]pcie", "h100_pcie"),
)


def spoken_of(said: Iterable[str], gpu_files: Sequence[str]) -> list[str]:
    """The classes (options of ``gpu``) that these texts name, each once, the first named first."""
    options = [Path(file).stem for file in gpu_files]
    patterns = [
        *((rf"(?<![\w-]){pattern}(?![\w-])", name) for pattern, name in _INSTANCES),
        *((rf"(?<![a-z0-9]){pattern}(?![a-z0-9])", name) for pattern, name in _WORDS),
        *(
            (rf"(?<![a-z0-9]){re.escape(name).replace('_', '[-_ ]')}(?![a-z0-9])", name)
            for name in sorted(options, key=len, reverse=True)
            if name not in ("auto", "none", "cpu")
        ),
    ]
    found: dict[str, None] = {}
    for text in said:
        lowered = text.lower()[:2000]
        for pattern, name in patterns:
            if name in options and re.search(pattern, lowered):
                found.setdefault(name)
                lowered = re.sub(pattern, " ", lowered)  # an H100-PCIe is no H100 too
    return list(found)
