"""``audit``: every model on every GPU class, and every published recipe."""

from __future__ import annotations

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.recipes import chosen_recipes, filters, matches
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.planning.audit import audit_lines, judge_cells, judge_recipes
from sglang_hydra.planning.catalog import gpu_classes, models
from sglang_hydra.text.screen import print_json, write


def run(invocation: Invocation) -> int:
    """The whole catalog: every model on every GPU class, and every recipe; ``gpu=`` and ``model=`` choose a part."""
    composer = composer_of(invocation)
    presets = {"gpu": [gpu.name for gpu in gpu_classes(composer)], "model": [model.name for model in models(composer)]}
    chosen = chosen_recipes(invocation.requests, presets)
    parts = dict(filters(invocation.requests, presets))
    cells = [
        cell
        for cell in judge_cells(composer)
        if matches(parts.get("model"), cell.name.split()[0]) and matches(parts.get("gpu"), cell.name.split()[1])
    ]
    published = list(judge_recipes(composer, chosen))
    if invocation.json:
        record = {"cells": [cell.to_json() for cell in cells], "recipes": [item.to_json() for item in published]}
        print_json({"schema": "sglang_hydra.audit/1", **record})
    else:
        write(audit_lines(cells, published))
    return 0
