"""Judges every model on every GPU class, for the catalog: how many GPUs serve it, with which command.

Every verdict is the planner's. No release is asked for its own code: what the browser would answer is what stands here.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.facts.gpu import GpuClass
    from sglang_hydra.planning.choosing.catalog import Model
    from sglang_hydra.planning.plan import Plan

COUNTS = (1, 2, 4, 8, 16)
_OF_ONE_MACHINE = 8
_STATE: dict[str, Any] = {}


def judged() -> dict[str, Any]:
    """``gpus``, ``models`` and ``pairs``: for each pair its ``counts`` and ``smallest``, the plan with the fewest GPUs
    that serves it, or null."""
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.compose.recipes import recipes
    from sglang_hydra.planning.choosing.catalog import gpu_classes, models

    with tempfile.TemporaryDirectory() as nothing:
        os.environ.update(SGLANG_HYDRA_CACHE=nothing, SGLANG_HYDRA_OFFLINE="1", HF_HUB_OFFLINE="1")
        composer = Composer()
        gpus = gpu_classes(composer)
        known = [model for model in models(composer) if model.name != "tiny"]
        _STATE.update(composer=composer, gpus=gpus, models=known)
        with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
            rows = pool.map(_row, range(len(known)), chunksize=1)
    published: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for recipe in recipes().values():
        row = {"id": recipe.id, "gpus": recipe.gpus, "version": recipe.version, "source": recipe.source}
        published.setdefault((recipe.model, recipe.gpu), []).append(row)
    for pair in (pair for row in rows for pair in row):
        pair["recipes"] = published.get((pair["model"], pair["gpu"]), [])
    return {
        "gpus": [{"name": gpu.name, "memory_mib": gpu.facts.memory_mib, "vendor": gpu.facts.vendor} for gpu in gpus],
        "models": [{"name": model.name, "path": model.path} for model in known],
        "pairs": [pair for row in rows for pair in row],
    }


def _row(number: int) -> list[dict[str, Any]]:
    return [_pair(_STATE["composer"], _STATE["models"][number], gpu) for gpu in _STATE["gpus"]]


def _pair(composer: Composer, model: Model, gpu: GpuClass) -> dict[str, Any]:
    counts = [_count(composer, model, gpu, number) for number in COUNTS]
    smallest = next((count for count in counts if count["serves"]), None)
    if smallest is None:
        smallest = _with_changes(composer, model, gpu)
    return {"model": model.name, "gpu": gpu.name, "counts": counts, "smallest": smallest}


def _count(composer: Composer, model: Model, gpu: GpuClass, number: int) -> dict[str, Any]:
    """The plan on this many GPUs, sharded by tensor parallelism; on several nodes where one has fewer."""
    node = gpu.facts.count or 1
    words = [f"gpu={gpu.name}", f"model={model.name}", f"tp_size={number}"]
    if node == 1:
        node = _OF_ONE_MACHINE
        words.append(f"gpu.count={min(number, node)}")
    if number > node:
        words.append(f"nnodes={number // node}")
    from sglang_hydra.text.errors import ConfigError

    try:
        plan = _planned(composer, words)
    except ConfigError as failure:
        return {"gpus": number, "words": words, "serves": False, "why": failure.findings[0].message}
    return {"gpus": number, "words": words, **_shown(plan)}


def _planned(composer: Composer, words: list[str]) -> Plan:
    from sglang_hydra.compose.overrides import Request
    from sglang_hydra.planning.making.make import plan_composed

    requests = [Request(word, f"override {place}") for place, word in enumerate(words, 1)]
    return plan_composed(composer, requests, composer.compose(requests), with_remedies=False)


def _shown(plan: Plan) -> dict[str, Any]:
    from sglang_hydra.planning.choosing.suggest import serves
    from sglang_hydra.show.first_lines import room_line, server_name
    from sglang_hydra.show.memory import memory_rows
    from sglang_hydra.show.plan import command_line

    launch, why = plan.verdict
    fit = plan.fit
    return {
        "serves": serves(plan),
        "launch": launch,
        "why": why,
        "room": room_line(plan),
        "by": server_name(plan),
        "exact": plan.is_exact,
        "left_gib": None if fit is None or fit.left is None else round(fit.left / 2**30, 1),
        "memory": [[cell for cell, _ in row] for row in memory_rows(fit)] if fit is not None else [],
        "memory_gib": fit.memory / 2**30 if fit is not None and fit.memory else None,
        "command": command_line(plan) if plan.launchable is not False else None,
    }


def _with_changes(composer: Composer, model: Model, gpu: GpuClass) -> dict[str, Any] | None:
    """The smallest plan with a smaller cache, another layout or other weights, where the plain ones do not serve."""
    from sglang_hydra.compose.overrides import Request
    from sglang_hydra.planning.choosing.suggest import FEWEST, suggestions
    from sglang_hydra.text.errors import ConfigError

    try:
        found = suggestions(composer, [Request(f"model={model.name}", "catalog")], [gpu.name], FEWEST)
    except ConfigError:
        return None
    if not found:
        return None
    words = [f"model={model.name}", *found[0].words]
    return {"gpus": found[0].gpus, "words": words, "changed": list(found[0].words[1:]), **_shown(found[0].plan)}
