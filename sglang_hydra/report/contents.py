"""What a report says, as plain values: the terminal, the CSV file and the page are only its renderings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sglang_hydra.report.comparing import (
    GOODPUT,
    INTERACTIVITY,
    ITL,
    TTFT,
    Group,
    Interval,
    Metric,
    Verdict,
    best,
    difference,
    grouped,
    interval,
    meets_slo,
    pareto,
    throughput_of,
)
from sglang_hydra.report.reading import SweepResults, varying

COLUMNS = (
    Metric("output_throughput", "output tokens/s", True, "tokens/s"),
    Metric("output_throughput_per_gpu", "per GPU", True, "tokens/s/GPU"),
    Metric("ttft_ms.p50", "TTFT p50 ms", False, "ms"),
    Metric("ttft_ms.p99", "TTFT p99 ms", False, "ms"),
    Metric("itl_ms.p50", "ITL p50 ms", False, "ms"),
    Metric("tpot_ms.p50", "TPOT p50 ms", False, "ms"),
    Metric("e2e_ms.p50", "end-to-end p50 ms", False, "ms"),
    Metric("interactivity", "tokens/s per user", True, "tokens/s"),
    Metric("goodput", "goodput requests/s", True, "requests/s"),
)
"""What a table of points shows; a column that nobody has values for is left out."""


class Winner(NamedTuple):
    """The best point of one kind: what it is best at, the verdict, its numbers, and the command that starts it."""

    title: str
    metric: Metric
    verdict: Verdict
    command: str


class Front(NamedTuple):
    """A Pareto chart: ``y`` against ``x``, all groups, and those that nothing beats, sweep by sweep."""

    x: Metric
    y: Metric
    groups: tuple[Group, ...]
    best: frozenset[int]


class Heat(NamedTuple):
    """A metric over two swept keys; where several points fall into one cell, the best of them."""

    metric: Metric
    x: str
    y: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]


class Changed(NamedTuple):
    """One point that two sweeps have: a metric before and after, the relative change, and whether it is noise.

    ``noise`` is None where repeats are missing to tell.
    """

    words: str
    metric: Metric
    before: float
    after: float
    change: float
    interval: Interval | None
    noise: bool | None


@dataclass(frozen=True)
class Report:
    """Everything that is shown, of one sweep or of several side by side."""

    sweeps: tuple[SweepResults, ...]
    groups: tuple[Group, ...]
    keys: tuple[str, ...]
    columns: tuple[Metric, ...]
    winners: tuple[Winner, ...]
    fronts: tuple[Front, ...]
    heat: Heat | None
    changes: tuple[Changed, ...]

    def cells(self, group: Group) -> list[str]:
        """The values of the keys that vary, for one group."""
        return [shown(group.first.settings.get(key)) for key in self.keys]


def make_report(sweeps: Sequence[SweepResults]) -> Report:
    rows = [row for sweep in sweeps for row in sweep.rows]
    valid = [row for row in rows if row.state == "valid"]
    groups = grouped(rows)
    keys = varying(valid)
    throughput = throughput_of(groups)
    fronts = tuple(_fronts(groups, throughput))
    columns = tuple(metric for metric in COLUMNS if any(group.mean(metric) is not None for group in groups))
    return Report(
        sweeps=tuple(sweeps),
        groups=tuple(groups),
        keys=tuple(keys),
        columns=columns,
        winners=tuple(_winners(sweeps, groups, throughput)),
        fronts=fronts,
        heat=_heat(groups, keys, throughput),
        changes=tuple(_changes(sweeps, groups, throughput)),
    )


def shown(value: Any) -> str:
    """A setting's value as one would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def spread_of(group: Group, metric: Metric) -> Interval | None:
    """The interval of a group's mean; None for a single repeat."""
    return interval(group.values(metric))


def command_of(sweep: SweepResults, group: Group) -> str:
    """What starts the server of a point: the words that all points share, and its own, without those of the load."""
    own = group.first.words
    named = {_key(word) for word in own}
    words = [word for word in sweep.shared if _key(word) not in named]
    kept = [word for word in (*words, *own) if _key(word).split(".")[0] not in ("bench", "sweep", "bench/workload")]
    return " ".join(["python serve.py", *(shlex.quote(word) for word in kept)])


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]


def _winners(sweeps: Sequence[SweepResults], groups: Sequence[Group], throughput: Metric) -> Iterator[Winner]:
    for sweep in sweeps:
        own = [group for group in groups if group.first.sweep == sweep.name]
        called = f"{sweep.name}: " if len(sweeps) > 1 else ""
        kinds = [(f"{called}highest throughput", throughput, lambda group: True)]
        if any(group.first.measures.get("slo_met") is not None for group in own):
            kinds += [
                (f"{called}highest throughput within the SLO", throughput, meets_slo),
                (f"{called}highest goodput", GOODPUT, lambda group: True),
            ]
        kinds += [(f"{called}lowest median TTFT", TTFT, lambda group: True)]
        for title, metric, within in kinds:
            verdict = best(own, metric, within)
            if verdict is not None:
                yield Winner(title, metric, verdict, command_of(sweep, verdict.best))


def _fronts(groups: Sequence[Group], throughput: Metric) -> Iterator[Front]:
    for x in (TTFT, ITL, INTERACTIVITY):
        known = tuple(group for group in groups if group.mean(x) is not None and group.mean(throughput) is not None)
        if not known:
            continue
        names = dict.fromkeys(group.first.sweep for group in known)
        best_ids = {
            id(group)
            for name in names
            for group in pareto([group for group in known if group.first.sweep == name], x, throughput)
        }
        yield Front(x, throughput, known, frozenset(best_ids))


def _heat(groups: Sequence[Group], keys: Sequence[str], metric: Metric) -> Heat | None:
    """Over the two keys with the most values, of those that do not say the same as each other."""
    counted = {key: list(dict.fromkeys(_label(group, key) for group in groups)) for key in keys}
    ranked = sorted((key for key in keys if 1 < len(counted[key]) <= 12), key=lambda key: (-len(counted[key]), key))
    for number, x in enumerate(ranked):
        for y in ranked[number + 1 :]:
            pairs = {(_label(group, x), _label(group, y)) for group in groups}
            if len(pairs) <= max(len(counted[x]), len(counted[y])):
                continue
            columns, rows = sorted(counted[x], key=_order), sorted(counted[y], key=_order)
            values = tuple(tuple(_cell(groups, metric, (x, column), (y, row)) for column in columns) for row in rows)
            return Heat(metric, x, y, tuple(columns), tuple(rows), values)
    return None


def _cell(groups: Sequence[Group], metric: Metric, *wanted: tuple[str, str]) -> float | None:
    found = [
        value
        for group in groups
        if all(_label(group, key) == label for key, label in wanted) and (value := group.mean(metric)) is not None
    ]
    return (max(found) if metric.more_is_better else min(found)) if found else None


def _label(group: Group, key: str) -> str:
    return shown(group.first.settings.get(key))


def _order(label: str) -> tuple[int, float, str]:
    """Numbers by size, before words."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _changes(sweeps: Sequence[SweepResults], groups: Sequence[Group], throughput: Metric) -> Iterator[Changed]:
    """Points that were typed alike in the first sweep and in each later one."""
    first = {group.first.words: group for group in groups if group.first.sweep == sweeps[0].name}
    for sweep in sweeps[1:]:
        for group in groups:
            before = first.get(group.first.words)
            if group.first.sweep != sweep.name or before is None:
                continue
            for metric in (throughput, TTFT, ITL):
                old, new = before.mean(metric), group.mean(metric)
                if old and new is not None:
                    moved = difference(before.values(metric), group.values(metric))
                    noise = None if moved is None else moved.low <= 0 <= moved.high
                    yield Changed(" ".join(group.first.words), metric, old, new, new / old - 1, moved, noise)
