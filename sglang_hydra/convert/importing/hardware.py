"""Which GPU class a text names: by an image's tag, a node's label, the name of an instance, a GPU's own name.

hardware.json has the patterns. ``instances`` are the families of the clouds, by their own documentation of GPU
instances: docs.aws.amazon.com/dlami/latest/devguide/gpu.html, cloud.google.com/compute/docs/gpus,
learn.microsoft.com/azure/virtual-machines/sizes/overview. ``words`` are parts of tags and labels that are no class's
own name; AMD's images are for an architecture (gfx942, gfx950).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sglang_hydra.text.json_types import json_beside


def classes_named_in(texts: Iterable[str], options: Sequence[str]) -> list[str]:
    """Returns the classes (``options`` of ``gpu``) that these texts name, each once, the first named first."""
    table = json_beside(__file__)
    patterns = [
        *((rf"(?<![\w-]){pattern}(?![\w-])", name) for pattern, name in table["instances"].items()),
        *((rf"(?<![a-z0-9]){pattern}(?![a-z0-9])", name) for pattern, name in table["words"].items()),
        *(
            (rf"(?<![a-z0-9]){re.escape(name).replace('_', '[-_ ]')}(?![a-z0-9])", name)
            for name in sorted(options, key=len, reverse=True)
            if name not in ("auto", "none", "cpu")
        ),
    ]
    found: dict[str, None] = {}
    for text in texts:
        lowered = text.lower()[:2000]
        for pattern, name in patterns:
            if name in options and re.search(pattern, lowered):
                found.setdefault(name)
                lowered = re.sub(pattern, " ", lowered)  # an H100-PCIe is no H100 too
    return list(found)
