"""``recipes``: published launch configurations, each with its verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import Recipe
from sglang_hydra.compose.recipes import recipes as published
from sglang_hydra.planning.audit import Judged, judge_recipes
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, columns, print_json, shown, text, write
from sglang_hydra.text.words import nearest, program

_SOURCE_WIDTH = 48


def run(invocation: Invocation) -> int:
    """The published configurations that match ``gpu=`` and ``model=`` (parts of names), each with its verdict."""
    chosen = chosen_recipes(invocation.requests)
    judged = list(judge_recipes(composer_of(invocation), chosen))
    if invocation.json:
        results = [_recipe_record(recipe, item) for recipe, item in zip(chosen, judged, strict=True)]
        print_json({"schema": "sglang_hydra.recipes/1", "recipes": results})
    else:
        write(_recipe_lines(chosen, judged))
    return 0


def chosen_recipes(requests: Sequence[Request], presets: Mapping[str, Collection[str]] | None = None) -> list[Recipe]:
    """The recipes that match, with ``presets`` as for ``filters``."""
    chosen = list(published().values())
    for key, value in filters(requests, presets):
        chosen = [recipe for recipe in chosen if matches(value, str(getattr(recipe, key) or ""))]
    return chosen


def filters(
    requests: Sequence[Request], presets: Mapping[str, Collection[str]] | None = None
) -> Iterator[tuple[str, str]]:
    """The parts of names that were asked for, of recipes and of ``presets`` (names by key). Raises ConfigError for any
    other word, and for a part of no name."""
    for request in requests:
        key, equals, value = request.text.partition("=")
        if key not in ("gpu", "model", "scenario") or not equals:
            message = f"{request.text}: the catalog is searched by gpu=, model= and scenario=, each a part of the name"
            example = (
                f"gpu={key}" if any(matches(key, recipe.gpu) for recipe in published().values()) else f"model={key}"
            )
            typed = example if not equals and key else "gpu=h200 model=deepseek"
            raise ConfigError(Finding("error", "CLI021", message, hint=f"{program()} recipes {typed}"))
        known = {str(getattr(recipe, key)) for recipe in published().values() if getattr(recipe, key)}
        names = sorted({*known, *(presets or {}).get(key, ())})
        if not any(matches(value, name) for name in names):
            near = nearest(value, names)
            hint = f"did you mean {key}={near}?" if near else None
            message = f"{request.text}: nothing was published for it; there are {', '.join(names)}"
            raise ConfigError(Finding("error", "CLI021", message, (key,), hint))
        yield key, value


def matches(asked: str | None, name: str) -> bool:
    """Whether one of the parts that commas separate is in the name."""
    return asked is None or any(part.strip().lower() in name for part in asked.split(","))


def _recipe_record(recipe: Recipe, judged: Judged) -> dict[str, Any]:
    return {
        **judged.to_json(),
        "id": recipe.id,
        "gpu": recipe.gpu,
        "gpus": recipe.gpus,
        "nodes": recipe.nodes,
        "model": recipe.model,
        "scenario": recipe.scenario,
        "version": recipe.version,
        "source": recipe.source,
        "note": recipe.note,
    }


def _recipe_lines(chosen: Sequence[Recipe], judged: Sequence[Judged]) -> list[Line]:
    if not chosen:
        message = "No published configuration matches all of it; each word alone matches some"
        return [[text(f"{message}: {program()} recipes model=..., or gpu=...")]]
    titles = ("recipe=", "GPUs", "for SGLang", "verdict on 0.5.2", "weights GiB", "KV tokens", "source")
    rows = [[text(title, "bold") for title in titles]]
    for recipe, item in zip(chosen, judged, strict=True):
        style = {"ok": "green", "unknown": "yellow"}.get(item.state, "red")
        verdict = item.state if item.state == "ok" else f"{item.state}: {', '.join(item.why)}"
        rows.append(
            [
                text(recipe.id),
                text(f"{recipe.gpus} x {recipe.gpu}"),
                text(recipe.version),
                text(verdict, style),
                text("?" if item.weights_gib is None else f"{item.weights_gib:.1f}"),
                text("?" if item.kv_tokens is None else f"{item.kv_tokens:,}"),
                text(shown(recipe.source, width=_SOURCE_WIDTH), "dim"),
            ]
        )
    return columns(rows)
