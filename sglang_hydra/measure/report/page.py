"""The report as one HTML file that needs nothing else: no network, no script, light and dark, from 400 pixels on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sglang_hydra.measure.report.charts import Mark, heat_map, legend_mark, scatter, short
from sglang_hydra.measure.report.comparing import Group, Interval
from sglang_hydra.measure.report.contents import Changed, Front, Heat, Report, Winner, latency_note, spread_of
from sglang_hydra.text.screen import printable
from sglang_hydra.text.words import plural

_TEMPLATE = Path(__file__).with_name("page.html.j2")


def page(report: Report) -> str:
    """The whole file. Every text in it is escaped by the template engine, every chart built as a tree; control
    characters are spelled out."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_visible
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    names = [sweep.name for sweep in report.sweeps]
    return template.render(
        title=", ".join(names),
        counts=counts(report),
        typed=[" ".join(sweep.words) for sweep in report.sweeps],
        problems=[finding.message for sweep in report.sweeps for finding in sweep.problems],
        winners=[_winner(report, winner) for winner in report.winners],
        fronts=[_front(report, front) for front in report.fronts],
        series=[(name, Markup(legend_mark(number))) for number, name in enumerate(names)],
        heats=[_heat(heat, len(names) > 1) for heat in report.heats],
        changes=[_change(item) for item in report.changes],
        keys=report.keys,
        columns=[metric.words for metric in report.columns],
        rows=[_row(report, group) for group in report.groups],
        latency=latency_note(report.sweeps),
        rejected=list(rejected(report)),
        environment=list(_environment(report)),
    )


def _visible(value: Any) -> Any:
    """What the template writes: texts without control characters, invisible ones and those that turn its direction."""
    return printable(value) if type(value) is str else value


def counts(report: Report) -> str:
    """Counts the points in each state."""
    rows = [row for sweep in report.sweeps for row in sweep.rows]
    refused = sum(int(item["count"]) for sweep in report.sweeps for item in sweep.refused)
    parts = [plural(len(rows), "point")]
    for state in ("valid", "invalid", "failed", "open"):
        count = sum(row.state == state for row in rows)
        if count:
            parts.append(f"{count} {state}")
    return ", ".join([*parts, *([f"{refused} refused before anything started"] if refused else [])])


def rejected(report: Report) -> Iterator[dict[str, str]]:
    """Every point that does not count, and why; refused ones by their reason."""
    several = len(report.sweeps) > 1
    for sweep in report.sweeps:
        where = f"{sweep.name}: " if several else ""
        for row in sweep.rows:
            if row.state in ("invalid", "failed"):
                yield {"state": row.state, "words": where + " ".join(row.words), "why": "; ".join(row.reasons)}
        for item in sweep.refused:
            example = " ".join(item["words"])
            points = f"{item['count']} points, such as {example}" if item["count"] > 1 else example
            yield {"state": "refused", "words": where + points, "why": f"{item['id']}: {item['message']}"}


def spelled(low_high: Interval | None) -> str:
    return "" if low_high is None else f"{short(low_high.low)} to {short(low_high.high)}"


def _winner(report: Report, winner: Winner) -> dict[str, Any]:
    group, metric = winner.verdict.best, winner.metric
    return {
        "title": winner.title,
        "number": short(group.mean(metric) or 0.0),
        "unit": metric.unit,
        "interval": spelled(spread_of(group, metric)),
        "settings": _settings(report, group),
        "sure": winner.verdict.sure,
        "why": winner.verdict.why,
        "command": winner.command,
    }


def _settings(report: Report, group: Group) -> str:
    pairs = zip(report.keys, report.cells(group), strict=True)
    return ", ".join(f"{key}={value}" for key, value in pairs) or "the only settings there are"


def _front(report: Report, front: Front) -> dict[str, Any]:
    from markupsafe import Markup

    names = [sweep.name for sweep in report.sweeps]
    marks = []
    for group in front.groups:
        x, y = group.mean(front.x), group.mean(front.y)
        if x is None or y is None:
            continue
        numbers = f"{short(y)} {front.y.unit} at {short(x)} {front.x.unit}"
        series = names.index(group.first.sweep)
        marks.append(Mark(x, y, series, id(group) in front.best, f"{_settings(report, group)}: {numbers}"))
    words = f"{front.x.words} ({front.x.unit})" if front.x.unit == "ms" else front.x.words
    title = f"{front.y.words} against {front.x.words}"
    return {"title": title, "svg": Markup(scatter(marks, words, front.y.words))}


def _heat(heat: Heat, several: bool) -> dict[str, Any]:
    from markupsafe import Markup

    svg = Markup(heat_map(heat.columns, heat.rows, heat.values, heat.x, heat.y))
    where = f"{heat.sweep}: " if several else ""
    return {"title": f"{where}{heat.metric.words} by {heat.x} and {heat.y}", "svg": svg}


def _change(item: Changed) -> dict[str, str]:
    verdict = {None: "repeats are needed to tell", True: "noise", False: "changed"}[item.noise]
    better = (item.change > 0) == item.metric.more_is_better
    return {
        "words": item.words,
        "metric": item.metric.words,
        "before": short(item.before),
        "after": short(item.after),
        "change": f"{item.change:+.1%}",
        "interval": spelled(item.interval),
        "verdict": verdict if item.noise is not False else "better" if better else "worse",
        "kind": "unsure" if item.noise is not False else "sure" if better else "failed",
    }


def _row(report: Report, group: Group) -> dict[str, Any]:
    numbers = []
    for metric in report.columns:
        mean = group.mean(metric)
        spread = spelled(spread_of(group, metric))
        numbers.append("" if mean is None else f"{short(mean)} ({spread})" if spread else short(mean))
    return {
        "sweep": group.first.sweep,
        "settings": report.cells(group),
        "numbers": numbers,
        "repeats": len(group.rows),
        "fronts": ", ".join(front.x.words for front in report.fronts if id(group) in front.best),
    }


def _environment(report: Report) -> Iterator[dict[str, str]]:
    several = len(report.sweeps) > 1
    for sweep in report.sweeps:
        where = f"{sweep.name}: " if several else ""
        yield {"name": f"{where}folder", "value": str(sweep.folder)}
        for name, values in sweep.environment.items():
            yield {"name": where + name, "value": ", ".join(values)}
