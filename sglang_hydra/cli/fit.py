"""``fit``: shows where the memory of a GPU goes, and what would make the model fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from sglang_hydra.cli.corrected import corrected_lines
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import code_of, composer_of
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.corrections import key_meant
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.fit.result import Wanted
from sglang_hydra.planning.choosing.forecast import forecast_of_plan, known_limit
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import by_estimate
from sglang_hydra.show import forecast as forecasts
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.first_lines import first_lines
from sglang_hydra.show.memory import memory_lines, table_head, table_row, verdict
from sglang_hydra.show.roofline import LIMIT_TITLES, limit_cells
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, folded, print_json, table, text, write


def run(invocation: Invocation) -> int:
    """Prints the memory of a plan, or with ``-m`` of several side by side. Returns 2 if the plan has an error."""
    if wrong := [*_loads(invocation.requests)]:
        raise ConfigError(*wrong)
    composer = composer_of(invocation)
    several, typed = invocation.has("multirun"), invocation.requests
    points = _points(composer, typed) if several else [("the plan", typed)]
    plans = [named for name, point in points for named in _plans_of(composer, point, name)]
    if invocation.has("json"):
        records = [_fit_record(name, plan) for name, plan in plans]
        whole = [record["fits"] for record in records]
        fits = False if False in whole else None if None in whole else True
        print_json({"schema": "sglang_hydra.fit/1", "fits": fits, "results": records})
    elif len(plans) == 1:
        made = plans[0][1]
        write(_fit_lines(made))
        corrected = corrected_lines(invocation, made.findings, composer) if made.launchable is False else []
        write([[], *corrected] if corrected else [])
    else:
        write(_fit_table(plans))
    return 0 if several else max(code_of(invocation, plan) for _, plan in plans)


def _loads(requests: Sequence[Request]) -> Iterator[Finding]:
    """Yields an error for each word that states the load as ``suggest`` and ``bench`` call it."""
    for request in requests:
        name, _, value = request.text.partition("=")
        of_users = "users" if key_meant(name) == "bench.concurrency" else None
        if key := name if name == "context" else of_users:
            message, fix = f"fit.{key} is what fit counts with", f"fit.{key}={value}"
            yield Finding("error", "CLI001", message, (name,), typed=(request.text,), fix=fix)


def _plans_of(composer: Composer, requests: Sequence[Request], name: str) -> Iterator[tuple[str, Plan]]:
    """Yields the name and plan of one point; for several servers those of the first server of each role."""
    plan = make_plan(composer, requests)
    if not has_several_servers(plan.nodes):
        yield name, plan
        return
    from sglang_hydra.planning.topology.plan import plan_topology

    for server in plan_topology(composer, requests, common=plan).servers:
        if server.index == 0:
            yield f"{name}, {server.role}", server.plan


def _points(composer: Composer, requests: Sequence[Request]) -> Iterator[tuple[str, list[Request]]]:
    """Yields every combination of the typed values, named by the values that differ."""
    from sglang_hydra.measure.sweep.axes import combinations
    from sglang_hydra.measure.sweep.grid import read_grid

    grid = read_grid(composer, requests, measured=False)
    write(finding_lines(grid.remarks), sys.stderr)
    for own in combinations(grid.axes):
        yield " ".join(request.text for request in own) or "the plan", [*grid.common, *own]


def _fit_record(name: str, plan: Plan) -> dict[str, object]:
    context = _context(plan)
    return {
        "name": name,
        "ok": plan.ok,
        "launchable": plan.launchable,
        "why": plan.verdict.why,
        "basis": plan.basis,
        "fits": plan.fit.fits if plan.fit else None,
        "context": context,
        "requests": plan.fit.concurrent_requests(context) if plan.fit and context else None,
        "holds": _holds(plan),
        "server_id": plan.server_id,
        "fit": plan.fit.to_json() if plan.fit else None,
        "limit": limit._asdict() if (limit := known_limit(plan).limit) else None,
        "forecast": plan.forecast,
        "findings": [finding.to_json() for finding in plan.findings],
    }


def _fit_lines(plan: Plan) -> list[Line]:
    shown = [finding for finding in plan.findings if finding.level != "info"]
    if plan.fit is None:
        nothing = "There is nothing to compute a fit from: " + _lacking(plan)
        return [*first_lines(plan), [], [text(nothing)], [], *finding_lines(shown, plan)]
    lines = [*first_lines(plan), [], *memory_lines(plan.fit, plan.gpu.name)]
    interval = plan.fit.interval
    if interval is not None:
        for reason in (interval.low_reason, interval.high_reason):
            lines += folded([text(f"  mem_fraction_static {reason}", "dim")])
    last = folded([text(f"{plan.gpu.name}: {verdict(plan.fit, _wanted(plan))}{by_estimate(plan)}", "bold")])
    return [*lines, [], *finding_lines(shown, plan), *last]


def _lacking(plan: Plan) -> str:
    if not plan.model.known:
        return f"the model is not known ({plan.model.source})"
    if plan.gpu.memory_mib is None or plan.gpu.device in (None, "cpu"):
        return f"the memory of gpu={plan.gpu.name} is unknown"
    if not plan.ok:
        return "SGLang refuses these arguments"
    return f"engine={plan.engine.name} divides memory in its own way"


def _fit_table(plans: Sequence[tuple[str, Plan]]) -> list[Line]:
    from sglang_hydra.measure.report.reading import points_of

    rows = [[*table_head(), *(text(title, "bold") for title in (*forecasts.TITLES, *LIMIT_TITLES))]]
    for name, plan in plans:
        if plan.fit is None:
            why = ", ".join(dict.fromkeys(finding.id for finding in plan.errors))
            rows.append([text(name), text("unknown" if plan.ok else f"refused: {why}", "yellow")])
            continue
        fits = plan.fit.fits is not False
        rows.append(
            [
                *table_row(name, plan.fit, _context(plan), _wanted(plan)),
                *(forecasts.cell(forecast_of_plan(plan, points_of(plan))) if fits else [text("?")] * 2),
                *limit_cells(known_limit(plan).limit if fits else None),
            ]
        )
    lines = table(rows)
    for note in dict.fromkeys(f"{name}{mark}" for name, plan in plans if (mark := by_estimate(plan))):
        lines += folded([text(note, "yellow")])
    load = known_limit(plans[0][1]).load if plans else None
    if load is not None:
        size = f"{load.input_len:,.0f} + {load.output_len:,.0f} tokens a request"
        note = f"with {size} (bench.*): explain forecast; limit: what the hardware allows: explain roofline"
        lines += folded([text(note, "dim")])
    return lines


def _wanted(plan: Plan) -> Wanted:
    return Wanted(plan.nodes.fit.context, plan.nodes.fit.users)


def _holds(plan: Plan) -> bool | None:
    """Returns whether ``fit.users`` requests of ``fit.context`` tokens (or the longest) fit; None if unknown."""
    if plan.fit is None or plan.fit.kv_tokens is None:
        return None
    return bool(plan.fit.fits) and plan.fit.shortage(_wanted(plan)) is None


def _context(plan: Plan) -> int | None:
    """Returns the tokens of one request: ``fit.context``, else the longest request for the server; None if unknown."""
    asked: int | None = plan.nodes.fit.context
    return asked or (plan.fit.kv.context if plan.fit and plan.fit.kv else None)
