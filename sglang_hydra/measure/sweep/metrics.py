"""Servers that are measured publish their metrics: cache hits and retractions, which decide whether a point counts."""

from __future__ import annotations

import os
from collections.abc import Collection

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.engines.planned import plan_engine
from sglang_hydra.planning.gpu_class import choose_gpu_class

FIELD = "enable_metrics"
_WANTED = Request(f"{FIELD}=true", "bench: cache hits and retractions are read from the server's metrics", "bench")


def with_metrics(
    composer: Composer, common: tuple[Request, ...], composition: Composition, varied: Collection[str]
) -> tuple[Request, ...]:
    """``common`` with ``enable_metrics=true``, unless somebody named it, or the embedded engine runs, which has none.

    ``composition`` is what ``common`` composes to, ``varied`` the keys of the sweep.
    """
    if FIELD in composition.intent or FIELD in varied:
        return common
    node = composition.nodes["engine"]
    here = False
    if node["name"] == "auto" and "gpu" not in varied:
        _, hardware = choose_gpu_class(composer, common, composition, os.environ)
        here = hardware.without_accelerator
    return (_WANTED, *common) if plan_engine(node, embedded_first=here).name == "sglang" else common
