"""Renders the report as one self-contained HTML file: no network, light and dark themes, from 400 pixels on. Its one
script shows the numbers of a mark, hides servers, and sorts and filters the table. The script holds no data, and the
page is readable without it. The page's own policy allows only that script and that style."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sglang_hydra.measure.report.charts import Axis, Mark, legend_mark, scatter, short
from sglang_hydra.measure.report.comparing import (
    INTERACTIVITY,
    ITL,
    TTFT,
    Best,
    Group,
    Interval,
    Metric,
    load_of_point,
    misses,
    server_words,
    servers_of,
    slo_words,
)
from sglang_hydra.measure.report.contents import (
    LIMIT_SHARE,
    Changed,
    Front,
    Report,
    Winner,
    Workload,
    latency_note,
    number_cell,
)
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.screen import printable
from sglang_hydra.text.words import plural

_PARTS = {
    name: Path(__file__).with_name(name) for name in ("page.html.j2", "tokens.css", "page.css", "table.js", "page.js")
}
"""The site and the documentation read ``tokens.css`` too, the catalog ``table.js``, which is a module there."""
_COLOURED = 5
"""The servers with a colour of their own: the best ones. The others are grey."""


def page(report: Report) -> str:
    """Returns the whole file. The template engine escapes every text, and charts are built as trees; control characters
    are spelled out."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_visible
    )
    parts = {name: file.read_text(encoding="utf-8") for name, file in _PARTS.items()}
    style = parts["tokens.css"] + parts["page.css"].strip()
    script = parts["table.js"].replace("export ", "", 1) + parts["page.js"].strip()
    template = environment.from_string(parts["page.html.j2"])
    names = [sweep.name for sweep in report.sweeps]
    drawn = _Drawn(report)
    return template.render(
        style=_markup(style),
        script=_markup(script),
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        title=title(report),
        counts=", ".join(filter(None, [" against ".join(names), dates(report), counts(report)])),
        shared=" ".join(dict.fromkeys(word for sweep in report.sweeps for word in server_words(sweep.shared))),
        typed=[" ".join(sweep.words) for sweep in report.sweeps],
        answers=report.search_answers,
        problems=[finding.message for sweep in report.sweeps for finding in sweep.problems],
        workloads=[drawn.workload(each) for each in report.largest],
        undrawn=len(report.workloads) - len(report.largest),
        legend=[(number, name, _markup(legend_mark(number))) for number, name in enumerate(drawn.legend)],
        sweeps=names,
        changes=[_change(item) for item in report.changes],
        keys=report.keys,
        columns=[metric.words for metric in report.columns],
        rows=[drawn.row(group) for group in report.groups],
        latency=latency_note(report.sweeps),
        rejected=list(rejected(report)),
        environment=list(_environment(report)),
    )


def _markup(content: str) -> object:
    from markupsafe import Markup

    return Markup(content)


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _visible(value: object) -> object:
    """Spells out control characters, invisible ones and direction marks of a text in the template."""
    return printable(value) if type(value) is str else value


def title(report: Report) -> str:
    """Returns the models and the GPUs of a report in words, its sweeps' names if their plans are not there. A local
    model is called by its folder's name."""
    called = re.compile(r"^/.*/|,.*")
    found = (
        dict.fromkeys(called.sub("", value) for sweep in report.sweeps for value in sweep.environment.get(name, ()))
        for name in ("model", "gpu")
    )
    names = ", ".join(sweep.name for sweep in report.sweeps)
    return " on ".join(", ".join(values) for values in found if values) or names


def dates(report: Report) -> str:
    """Returns the first and the last day of the measurements; empty without one."""
    rows = (row.record for sweep in report.sweeps for row in sweep.rows)
    days = sorted(record["started"][:10] for record in rows if "started" in record)
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""


def counts(report: Report) -> str:
    found = Counter(row.state for sweep in report.sweeps for row in sweep.rows)
    refused = sum(int(item["count"]) for sweep in report.sweeps for item in sweep.refused)
    parts = [plural(found.total(), "point")]
    parts += [f"{found[state]} {state}" for state in ("valid", "invalid", "failed", "open") if found[state]]
    return ", ".join([*parts, *([f"{refused} refused before anything started"] if refused else [])])


def rejected(report: Report) -> Iterator[dict[str, str]]:
    """Yields every point that does not count, with the reason; groups refused ones by their reason."""
    for sweep in report.sweeps:
        where = f"{sweep.name}: " if len(report.sweeps) > 1 else ""
        for row in sweep.rows:
            if row.state in ("invalid", "failed"):
                yield {"state": row.state, "words": where + " ".join(row.words), "why": "; ".join(row.reasons)}
        for item in sweep.refused:
            example = " ".join(item["words"])
            points = f"{item['count']} points, such as {example}" if item["count"] > 1 else example
            yield {"state": "refused", "words": where + points, "why": f"{item['id']}: {item['message']}"}


def spelled(low_high: Interval | None) -> str:
    return "" if low_high is None else f"{short(low_high.low)} to {short(low_high.high)}"


class _Drawn:
    """Prepares the drawing of a report: each server has a number, which sets its colour and shape, and a name; each
    point has its row of the table. Beyond five servers only the best have a number of their own: those with the most
    titles, then with the most points on a front."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._sweeps = [sweep.name for sweep in report.sweeps]
        self._server = servers_of(report.groups)
        names = list(dict.fromkeys(self._server.values()))
        titles = Counter(self._name(winner.verdict.best) for each in report.workloads for winner in each.winners)
        fronts = ((each, front.best) for front in report.fronts for each in front.groups)
        unbeaten = Counter(self._name(each) for each, best in fronts if id(each) in best)
        best = sorted(names, key=lambda name: (-titles[name], -unbeaten[name]))[:_COLOURED]
        self._coloured = [name for name in names if name in best]
        rest = len(names) - len(best)
        self.legend = [*self._coloured, *([plural(rest, "other server")] if rest else [])]
        self._points = {id(group): number for number, group in enumerate(report.groups)}

    def workload(self, workload: Workload) -> JsonDict:
        fronts = sorted(workload.fronts, key=lambda front: front.x is not INTERACTIVITY)
        metrics = (self._report.throughput, TTFT, ITL)
        return {
            "words": workload.words,
            "slo": slo_words(workload.slo),
            "held": workload.held,
            "cards": self._cards(workload.winners),
            "charts": [self._chart(workload, front) for front in fronts],
            "throughput": self._report.throughput.words,
            "leaders": [(leader.load, map(self._leader, leader.verdicts, metrics)) for leader in workload.leaders],
        }

    def _name(self, group: Group) -> str:
        return self._server[group.first.server_id]

    def _called(self, group: Group) -> str:
        name = self._name(group)
        return f"{group.first.sweep}: {name}" if len(self._sweeps) > 1 else name

    def _series(self, group: Group) -> int:
        name = self._name(group)
        return self._coloured.index(name) if name in self._coloured else _COLOURED

    def _cards(self, winners: Sequence[Winner]) -> list[JsonDict]:
        """Returns one card for each server that is best at something."""
        cards: dict[str, JsonDict] = {}
        for winner in winners:
            group, metric = winner.verdict.best, winner.metric
            server = group.first.server_id
            made = {"name": self._server[server], "command": winner.command, "winners": []}
            card = cards.setdefault(server, {**made, "mark": _markup(legend_mark(self._series(group)))})
            card["winners"].append(
                {
                    "title": winner.title,
                    "number": short(group.mean(metric) or 0.0),
                    "unit": metric.unit,
                    "interval": spelled(group.interval(metric)),
                    "at": load_of_point(group)[2],
                    "limit": share_words(group),
                    "verdict": winner.verdict,
                }
            )
        return list(cards.values())

    def _leader(self, verdict: Best | None, metric: Metric) -> dict[str, object] | None:
        if verdict is None:
            return None
        words = f"{self._called(verdict.best)}: {short(verdict.best.mean(metric) or 0.0)} {metric.unit}"
        return {"mark": _markup(legend_mark(self._series(verdict.best))), "words": words, "verdict": verdict}

    def _chart(self, workload: Workload, front: Front) -> dict[str, object]:
        marks = [mark for group in front.groups if (mark := self._mark(workload, front, group)) is not None]
        unit = f" ({front.x.unit})" if front.x.unit == "ms" else ""
        x = Axis(front.x.words + unit, front.x.more_is_better, _limit_of(front.x, workload.slo))
        y = Axis(front.y.words, True)
        has_log = all(mark.x > 0 and mark.y > 0 for mark in marks)
        title = f"{front.y.words} against {front.x.words}"
        return {"title": title, "even": _markup(scatter(marks, x, y)), "log": _markup(scatter(marks, x, y, has_log))}

    def _mark(self, workload: Workload, front: Front, group: Group) -> Mark | None:
        x, y = group.mean(front.x), group.mean(front.y)
        if x is None or y is None:
            return None
        order, label, _ = load_of_point(group)
        return Mark(
            x,
            y,
            self._series(group),
            id(group) in front.best,
            self._title(workload, group),
            f"{group.first.sweep} {group.first.server_id}",
            order,
            label,
            len(self._sweeps) - 1 - self._sweeps.index(group.first.sweep),
            self._points[id(group)],
            misses(group, workload.slo),
            group.interval(front.x),
            group.interval(front.y),
        )

    def _title(self, workload: Workload, group: Group) -> str:
        """Returns the hover text of a point: its server, its load, its numbers with their noise."""
        lines = [self._called(group), load_of_point(group)[2]]
        for metric in dict.fromkeys((self._report.throughput, INTERACTIVITY, TTFT, ITL)):
            if (mean := group.mean(metric)) is not None:
                noise = spelled(group.interval(metric))
                unit = "ms" if metric.unit == "ms" else ""
                lines.append(f"{metric.words}: {short(mean)} {unit}".rstrip() + (f" ({noise})" if noise else ""))
        lines += [share_words(group), plural(len(group.rows), "repeat")]
        if workload.slo and misses(group, workload.slo):
            lines.append(f"misses {slo_words(workload.slo)}")
        return "\n".join(printable(line) for line in lines if line)

    def row(self, group: Group) -> JsonDict:
        means = [(metric, group.mean(metric)) for metric in self._report.columns]
        numbers = [
            {
                "words": number_cell(metric, mean),
                "spread": "" if mean is None else spelled(group.interval(metric)),
                "value": "" if mean is None else repr(mean),
                "share": min(mean, 100.0) if metric is LIMIT_SHARE and mean is not None else None,
            }
            for metric, mean in means
        ]
        fronts = [front for workload in self._report.workloads for front in workload.fronts]
        return {
            "point": self._points[id(group)],
            "series": self._series(group),
            "sweep": group.first.sweep,
            "settings": self._report.cells(group),
            "numbers": numbers,
            "repeats": len(group.rows),
            "fronts": ", ".join(front.x.words for front in fronts if id(group) in front.best),
        }


def share_words(group: Group) -> str:
    """Returns the share of the hardware's limit in words; empty if unknown."""
    share = group.mean(LIMIT_SHARE)
    if share is None:
        return ""
    return f"{short(share)} % of the hardware's limit" + (", check inputs" if share > 100 else "")


def _limit_of(metric: Metric, slo: Mapping[str, float]) -> float | None:
    """Returns the limit of an axis. For interactivity, ``itl_ms`` per token means 1000 / itl_ms tokens/s."""
    if metric is INTERACTIVITY:
        return 1000 / slo["itl_ms"] if "itl_ms" in slo else None
    return slo.get(metric.key.partition(".")[0])


def _change(item: Changed) -> dict[str, str]:
    better = (item.change > 0) == item.metric.more_is_better
    verdict, kind = ("better", "sure") if better else ("worse", "failed")
    if item.noise is not False:
        verdict, kind = "noise" if item.noise else "repeats are needed to tell", "unsure"
    return {
        "words": item.words,
        "metric": item.metric.words,
        "before": short(item.before),
        "after": short(item.after),
        "change": f"{item.change:+.1%}",
        "interval": spelled(item.interval),
        "verdict": verdict,
        "kind": kind,
    }


def _environment(report: Report) -> Iterator[dict[str, str]]:
    for sweep in report.sweeps:
        where = f"{sweep.name}: " if len(report.sweeps) > 1 else ""
        yield {"name": f"{where}folder", "value": str(sweep.folder)}
        for name, values in sweep.environment.items():
            yield {"name": where + name, "value": ", ".join(values)}
