"""Every class of failure that is told apart, in one table. Its order decides between classes that one line fits equally
well, so the more telling ones come first; ids never change. A new class is one declaration in the file of its concern.
"""

from __future__ import annotations

from sglang_hydra.run.diagnose.classes import (
    arguments,
    checkpoint,
    cluster,
    gpu,
    host,
    memory,
    model,
    process,
    software,
)
from sglang_hydra.run.diagnose.failure_class import FailureClass

CLASSES: tuple[FailureClass, ...] = (
    *memory.CLASSES,
    *checkpoint.CLASSES,
    *model.CLASSES,
    *arguments.CLASSES,
    *gpu.CLASSES,
    *cluster.CLASSES,
    *host.CLASSES,
    *software.CLASSES,
    *process.CLASSES,
)

BY_KIND = {failure.kind: failure for failure in CLASSES}
