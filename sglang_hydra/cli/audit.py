"""``audit``: judges every model on every GPU class, and every published recipe."""

from __future__ import annotations

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.recipes import chosen_recipes, filters, judging, matches
from sglang_hydra.cli.shared import composer_of, show
from sglang_hydra.planning.choosing.audit import audit_lines, judge_cells, judge_recipes
from sglang_hydra.planning.choosing.catalog import gpu_classes, models
from sglang_hydra.text.progress import counted


def run(invocation: Invocation) -> int:
    """Prints the verdicts on the catalog: every model on every GPU class, and every recipe. ``gpu=`` and ``model=``
    choose a part, ``engine.version=`` the release: by its recorded answers, with ``--exact`` also by its wheel."""
    composer = composer_of(invocation)
    by = judging(invocation)
    presets = {"gpu": [gpu.name for gpu in gpu_classes(composer)], "model": [model.name for model in models(composer)]}
    chosen = chosen_recipes(invocation.requests, presets)
    parts = dict(filters(invocation.requests, presets))

    def is_chosen(model: str, gpu: str) -> bool:
        return matches(parts.get("model"), model, "model") and matches(parts.get("gpu"), gpu, "gpu")

    asked = sum(is_chosen(model, gpu) for model in presets["model"] for gpu in presets["gpu"])
    cells = list(counted(judge_cells(composer, by, is_chosen), "pairs of a model and a GPU", asked))
    published = list(counted(judge_recipes(composer, chosen, by), "recipes", len(chosen)))
    record = {"cells": [cell.to_json() for cell in cells], "recipes": [item.to_json() for item in published]}
    show(invocation, lambda: {"schema": "sglang_hydra.audit/1", **record}, lambda: audit_lines(cells, published))
    return 0
