"""The verbs that look at more than one plan, or at this machine: fit, recipes, audit, doctor."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sglang_hydra.actions import composer_of, print_json
from sglang_hydra.app import make_plan
from sglang_hydra.errors import ConfigError
from sglang_hydra.explain import finding_lines
from sglang_hydra.findings import Finding
from sglang_hydra.memory_screen import memory_lines, table_head, table_row, verdict
from sglang_hydra.overrides import Request
from sglang_hydra.screen import Line, columns, shown, text, write
from sglang_hydra.topology.settings import has_several_servers
from sglang_hydra.words import nearest, program

if TYPE_CHECKING:
    from sglang_hydra.audit import Judged
    from sglang_hydra.cli import Invocation
    from sglang_hydra.compose import Composer
    from sglang_hydra.plans import Plan
    from sglang_hydra.recipes import Recipe

_SOURCE_WIDTH = 48


def fit(invocation: Invocation) -> int:
    """The memory of a plan, or with ``-m`` of several side by side. 2 if SGLang would refuse one of them."""
    composer = composer_of(invocation)
    points = _points(composer, invocation.requests) if invocation.multirun else [("the plan", invocation.requests)]
    plans = [named for name, point in points for named in _plans_of(composer, point, name)]
    if invocation.json:
        records = [_fit_record(name, plan) for name, plan in plans]
        whole = [record["fits"] for record in records]
        fits = False if False in whole else None if None in whole else True
        print_json({"schema": "sglang_hydra.fit/1", "fits": fits, "results": records})
    elif len(plans) == 1:
        write(_fit_lines(plans[0][1]))
    else:
        write(_fit_table(plans))
    return 0 if all(plan.ok for _, plan in plans) else 2


def recipes(invocation: Invocation) -> int:
    """The published configurations that match ``gpu=`` and ``model=`` (parts of names), each with its verdict."""
    from sglang_hydra.audit import judge_recipes

    chosen = _chosen_recipes(invocation.requests)
    judged = list(judge_recipes(composer_of(invocation), chosen))
    if invocation.json:
        results = [_recipe_record(recipe, item) for recipe, item in zip(chosen, judged, strict=True)]
        print_json({"schema": "sglang_hydra.recipes/1", "recipes": results})
    else:
        write(_recipe_lines(chosen, judged))
    return 0


def audit(invocation: Invocation) -> int:
    """The whole catalog: every model on every GPU class, and every recipe; ``gpu=`` and ``model=`` choose a part."""
    from sglang_hydra.audit import audit_lines, judge_cells, judge_recipes

    composer = composer_of(invocation)
    chosen = _chosen_recipes(invocation.requests)
    parts = dict(_filters(invocation.requests))
    cells = [
        cell
        for cell in judge_cells(composer)
        if _matches(parts.get("model"), cell.name.split()[0]) and _matches(parts.get("gpu"), cell.name.split()[1])
    ]
    published = list(judge_recipes(composer, chosen))
    if invocation.json:
        record = {"cells": [cell.to_json() for cell in cells], "recipes": [item.to_json() for item in published]}
        print_json({"schema": "sglang_hydra.audit/1", **record})
    else:
        write(audit_lines(cells, published))
    return 0


def doctor(invocation: Invocation) -> int:
    """What this machine has and lacks for the plan that was named, if any. 3 where something stands in the way."""
    from sglang_hydra.doctor import doctor_record, doctor_screen, examine

    named = any(request.text.startswith(("model", "recipe")) for request in invocation.requests)
    plan = make_plan(composer_of(invocation), invocation.requests)
    values = plan.values
    wants = not plan.probed and plan.gpu.device is not None
    found = examine(
        os.environ,
        python=plan.engine.python,
        model_path=str(values["model_path"]) if named and values["model_path"] else None,
        host=str(values["host"]),
        port=int(values["port"]),
        download_dir=values["download_dir"],
        device=plan.gpu.device if wants else None,
        gpu=plan.gpu.name if wants else None,
    )
    record = doctor_record(found)
    if invocation.json:
        print_json(record)
    else:
        write(doctor_screen(found))
    return 0 if record["ok"] else 3


def _plans_of(composer: Composer, requests: Sequence[Request], name: str) -> Iterator[tuple[str, Plan]]:
    """The plan of one point by its name; of several servers that of the first of each role."""
    plan = make_plan(composer, requests)
    if not has_several_servers(plan.nodes):
        yield name, plan
        return
    from sglang_hydra.topology.plan import plan_topology

    for server in plan_topology(composer, requests, common=plan).servers:
        if server.index == 0:
            yield f"{name}, {server.role}", server.plan


def _points(composer: Composer, requests: Sequence[Request]) -> Iterator[tuple[str, list[Request]]]:
    """Every combination of the values that were typed, by what tells it from its neighbours."""
    from sglang_hydra.sweep.axes import combinations
    from sglang_hydra.sweep.grid import read_grid

    grid = read_grid(composer, requests, measured=False)
    for own in combinations(grid.axes):
        yield " ".join(request.text for request in own) or "the plan", [*grid.common, *own]


def _fit_record(name: str, plan: Plan) -> dict[str, Any]:
    context = _context(plan)
    return {
        "name": name,
        "ok": plan.ok,
        "fits": plan.fit.fits if plan.fit else None,
        "context": context,
        "requests": plan.fit.concurrent_requests(context) if plan.fit and context else None,
        "server_id": plan.server_id,
        "fit": plan.fit.to_json() if plan.fit else None,
        "findings": [finding.to_json() for finding in plan.findings],
    }


def _fit_lines(plan: Plan) -> list[Line]:
    said = [finding for finding in plan.findings if finding.level != "info"]
    if plan.fit is None:
        nothing = "There is nothing to compute a fit from: " + _lacking(plan)
        return [[text(nothing)], [], *finding_lines(said, plan)]
    context = plan.nodes["fit"]["context"]
    lines = memory_lines(plan.fit, plan.gpu.name)
    if context:
        requests = plan.fit.concurrent_requests(context)
        lines.append(
            [text(f"  {'?' if requests is None else f'{requests:,}'} requests of {context:,} tokens at a time")]
        )
    interval = plan.fit.interval
    if interval is not None:
        lines.append([text(f"  mem_fraction_static {interval.low_reason}", "dim")])
        lines.append([text(f"  mem_fraction_static {interval.high_reason}", "dim")])
    lines += [[], *finding_lines(said, plan), [text(f"{plan.gpu.name}: {verdict(plan.fit)}", "bold")]]
    return lines


def _lacking(plan: Plan) -> str:
    if not plan.model.known:
        return f"the model is not known ({plan.model.source})"
    if plan.gpu.memory_mib is None or plan.gpu.device in (None, "cpu"):
        return f"gpu={plan.gpu.name} has no memory of its own that is known"
    if not plan.ok:
        return "SGLang refuses these arguments"
    return f"engine={plan.engine.name} divides memory in its own way"


def _fit_table(plans: Sequence[tuple[str, Plan]]) -> list[Line]:
    rows = [table_head()]
    for name, plan in plans:
        if plan.fit is None:
            why = ", ".join(dict.fromkeys(finding.id for finding in plan.errors))
            rows.append([text(name), text("unknown" if plan.ok else f"refused: {why}", "yellow")])
            continue
        rows.append(table_row(name, plan.fit, _context(plan)))
    return columns(rows)


def _context(plan: Plan) -> int | None:
    """The tokens of a request that requests are counted in: ``fit.context``, else the longest that the server takes."""
    asked: int | None = plan.nodes["fit"]["context"]
    return asked or (plan.fit.kv.context if plan.fit and plan.fit.kv else None)


def _chosen_recipes(requests: Sequence[Request]) -> list[Recipe]:
    from sglang_hydra.recipes import recipes as published

    chosen = list(published().values())
    for key, value in _filters(requests):
        chosen = [recipe for recipe in chosen if _matches(value, str(getattr(recipe, key) or ""))]
    return chosen


def _filters(requests: Sequence[Request]) -> Iterator[tuple[str, str]]:
    """The parts of names that were asked for. Raises ConfigError for any other word, and for a part of no name."""
    from sglang_hydra.recipes import recipes as published

    for request in requests:
        key, equals, value = request.text.partition("=")
        if key not in ("gpu", "model", "scenario") or not equals:
            message = f"{request.text}: the catalog is searched by gpu=, model= and scenario=, each a part of the name"
            example = (
                f"gpu={key}" if any(_matches(key, recipe.gpu) for recipe in published().values()) else f"model={key}"
            )
            typed = example if not equals and key else "gpu=h200 model=deepseek"
            raise ConfigError(Finding("error", "CLI021", message, hint=f"{program()} recipes {typed}"))
        names = sorted({str(getattr(recipe, key)) for recipe in published().values() if getattr(recipe, key)})
        if not any(_matches(value, name) for name in names):
            near = nearest(value, names)
            hint = f"did you mean {key}={near}?" if near else None
            message = f"{request.text}: nothing was published for it; there are {', '.join(names)}"
            raise ConfigError(Finding("error", "CLI021", message, (key,), hint))
        yield key, value


def _matches(asked: str | None, name: str) -> bool:
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
        said = "No published configuration matches all of it; each word alone matches some"
        return [[text(f"{said}: {program()} recipes model=..., or gpu=...")]]
    titles = ("recipe=", "GPUs", "for SGLang", "verdict on 0.5.2", "weights GiB", "KV tokens", "source")
    rows = [[text(title, "bold") for title in titles]]
    for recipe, item in zip(chosen, judged, strict=True):
        style = {"ok": "green", "unknown": "yellow"}.get(item.state, "red")
        said = item.state if item.state == "ok" else f"{item.state}: {', '.join(item.why)}"
        rows.append(
            [
                text(recipe.id),
                text(f"{recipe.gpus} x {recipe.gpu}"),
                text(recipe.version),
                text(said, style),
                text("?" if item.weights_gib is None else f"{item.weights_gib:.1f}"),
                text("?" if item.kv_tokens is None else f"{item.kv_tokens:,}"),
                text(shown(recipe.source, width=_SOURCE_WIDTH), "dim"),
            ]
        )
    return columns(rows)
