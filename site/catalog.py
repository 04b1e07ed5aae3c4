"""Judges every model on every GPU class, for the catalog: how many GPUs hold each load, with which command.

Every verdict is the planner's. No release is asked for its own code: what the browser would answer is what stands here.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.facts.gpu import GpuClass
    from sglang_hydra.planning.choosing.catalog import Model
    from sglang_hydra.planning.plan import Plan

COUNTS = (1, 2, 4, 8, 16)
_OF_ONE_MACHINE = 8
_STATE: dict[str, Any] = {}


class Load(NamedTuple):
    """What a server has to hold: ``users`` requests at a time of ``context`` tokens; None is the longest it takes."""

    name: str
    users: int
    context: int | None

    @property
    def words(self) -> str:
        """``32 requests of 8,192 tokens``"""
        number = "one request" if self.users == 1 else f"{self.users} requests"
        return f"{number} of {'the longest' if self.context is None else f'{self.context:,} tokens'}"

    @property
    def typed(self) -> list[str]:
        """The overrides with which a plan is judged by it: without any, it is one request of the longest."""
        return [] if self.context is None else [f"fit.context={self.context}", f"fit.users={self.users}"]


LOADS = (Load("many", 32, 8192), Load("one", 1, 8192), Load("longest", 1, None))
"""The first is that of the matrix until somebody chooses, and of the titles."""


def judged() -> dict[str, Any]:
    """``gpus``, ``models`` and ``pairs``. A pair has its ``counts``, a plan for each number of GPUs, and ``fewest``:
    by the name of a load, the plan with the fewest GPUs that holds it, or null."""
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.compose.recipes import recipes
    from sglang_hydra.planning.choosing.catalog import gpu_classes, models
    from sglang_hydra.planning.making.gpu_class import gpu_nodes

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
    nodes = gpu_nodes(composer)
    sources = {preset.name: preset.node["source"] for preset in composer.presets("model")}
    return {
        "gpus": [{"name": gpu.name, **_searched(gpu, nodes[gpu.name])} for gpu in gpus],
        "models": [{"name": model.name, "path": model.path, "source": sources[model.name]} for model in known],
        "pairs": [pair for row in rows for pair in row],
    }


def data_date() -> str:
    """Returns the day on which the newest source of a preset was read."""
    conf = Path(__file__).resolve().parents[1] / "conf"
    texts = (file.read_text(encoding="utf-8") for group in ("gpu", "model") for file in (conf / group).glob("*.yaml"))
    return max(day for text in texts for day in re.findall(r"; read (\d{4}-\d\d-\d\d)", text))


def _searched(gpu: GpuClass, node: Any) -> dict[str, Any]:
    """What the filter finds a GPU class by: who makes it, what its driver calls it, its memory as people say it. And
    its source."""
    size = round((gpu.facts.memory_mib or 0) / 1024)
    names = node.get("device_names") or ()
    search = " ".join([gpu.facts.vendor, *names, f"{size}gb"])
    return {"vendor": gpu.facts.vendor, "source": node["source"], "search": search}


def _row(number: int) -> list[dict[str, Any]]:
    return [_pair(_STATE["composer"], _STATE["models"][number], gpu) for gpu in _STATE["gpus"]]


def _pair(composer: Composer, model: Model, gpu: GpuClass) -> dict[str, Any]:
    from published import refused_alike

    counts = [_count(composer, model, gpu, number) for number in COUNTS]
    is_refused = refused_alike(counts)
    if is_refused:
        for count in counts:
            count["holds"] = count["holds"] if count.get("exact") else []
    fewest: dict[str, Any] = {}
    changed: list[dict[str, Any]] = []
    for load in sorted(LOADS, key=lambda load: load.name != "one"):
        best = next((plan for plan in (*counts, *changed) if load.name in plan["holds"]), None)
        if best is None and (load.name == "one" or fewest["one"] is not None):  # what holds more holds one, too
            best = _with_changes(composer, model, gpu, load, is_refused)
            changed += [best] if best else []
        fewest[load.name] = best and {**best, "load": load.words, "title": _title(model.path, gpu.name, best, load)}
    return {"model": model.name, "gpu": gpu.name, "path": model.path, "counts": counts, "fewest": fewest}


def _title(path: str, gpu: str, best: dict[str, Any], load: Load) -> str:
    """``Qwen/Qwen3-8B on h100: 1 GPU holds 32 requests of 8,192 tokens``, and what was changed for it."""
    number = best["gpus"]
    held = "may hold" if not best["exact"] else "holds" if number == 1 else "hold"
    with_changes = f", with {' '.join(best['changed'])}" if best.get("changed") else ""
    return f"{path} on {gpu}: {number} GPU{'' if number == 1 else 's'} {held} {load.words}{with_changes}"


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
        return {"gpus": number, "words": words, "holds": [], "why": failure.findings[0].message}
    return {"gpus": number, "words": words, **_shown(plan, model.path)}


def _planned(composer: Composer, words: list[str]) -> Plan:
    from sglang_hydra.compose.overrides import Request
    from sglang_hydra.planning.making.make import plan_composed

    requests = [Request(word, f"override {place}") for place, word in enumerate(words, 1)]
    return plan_composed(composer, requests, composer.compose(requests), with_remedies=False)


def _shown(plan: Plan, path: str) -> dict[str, Any]:
    """A plan as a page has it. ``holds`` names the loads that it serves, ``weights`` the checkpoint where that is not
    the model's own, ``findings`` the level and the id of each."""
    from sglang_hydra.show.first_lines import room_line, server_name
    from sglang_hydra.show.memory import memory_rows
    from sglang_hydra.show.plan import command_cells

    launch, why = plan.verdict
    fit = plan.fit
    weights = plan.values.get("model_path")
    return {
        "holds": [load.name for load in LOADS if _holds(plan, load)],
        "launch": launch,
        "why": "the release was not asked" if plan.resolution.not_asked and launch == "unknown" else why,
        "room": room_line(plan),
        "by": server_name(plan),
        "exact": plan.is_exact,
        "nodes": plan.values["nnodes"],
        "weights": None if weights == path else weights,
        "format": None if fit is None else fit.weights.format,
        "findings": [[finding.level, finding.id] for finding in plan.findings],
        "left_gib": None if fit is None or fit.left is None else round(fit.left / 2**30, 1),
        "memory": [[cell for cell, _ in row] for row in memory_rows(fit)] if fit is not None else [],
        "memory_gib": fit.memory / 2**30 if fit is not None and fit.memory else None,
        "error_gib": None if fit is None else fit.error_gib,
        "commands": command_cells(plan),
    }


def _holds(plan: Plan, load: Load) -> bool:
    """Returns whether it launches without a problem, fits with the likeliest numbers, and holds the load."""
    from published import stops

    from sglang_hydra.fit.result import Wanted

    fit = plan.fit
    if (
        plan.launchable is False
        or fit is None
        or not fit.fits
        or fit.tight
        or any(stops(item.level, item.id) for item in plan.findings)
    ):
        return False
    longest = fit.kv.context if fit.kv else 0
    context = None if load.context is None else min(load.context, longest or load.context)
    return fit.shortage(Wanted(context, load.users)) is None


def _with_changes(
    composer: Composer, model: Model, gpu: GpuClass, load: Load, is_refused: bool
) -> dict[str, Any] | None:
    """The smallest plan with a smaller cache, another layout or other weights, where the plain ones do not hold it.
    Where the release refused the plain ones, no estimate of the same weights counts."""
    from sglang_hydra.compose.overrides import Request
    from sglang_hydra.planning.choosing.suggest import FEWEST, suggestions
    from sglang_hydra.text.errors import ConfigError

    asked = [Request(word, "catalog") for word in (f"model={model.name}", *load.typed)]
    try:
        found = suggestions(composer, asked, [gpu.name], FEWEST, thorough=False)
    except ConfigError:
        return None
    for one in found:
        changed = [word for word in one.words[1:] if not word.startswith(("tp_size=", "nnodes="))]
        if not changed and one.gpus in COUNTS:
            continue  # the plain plan on as many GPUs does not hold it, here on other nodes
        if _holds(one.plan, load) and (
            one.plan.is_exact or not is_refused or one.plan.values["model_path"] != model.path
        ):
            words = [f"model={model.name}", *one.words]
            return {"gpus": one.gpus, "words": words, "changed": changed, **_shown(one.plan, model.path)}
    return None
