"""Computes the contents of a report as plain values; the terminal, the CSV file and the page only render them."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.measure.report.charts import short
from sglang_hydra.measure.report.comparing import (
    GOODPUT,
    INTERACTIVITY,
    ITL,
    TTFT,
    Best,
    Group,
    Interval,
    Leader,
    Metric,
    best,
    difference,
    grouped,
    key_of,
    leaders,
    measured_slo,
    meets_slo,
    misses,
    pareto,
    server_words,
    slo_words,
    throughput_of,
    workloads_of,
)
from sglang_hydra.measure.report.reading import SweepResults, latency_from, varying
from sglang_hydra.measure.sweep.store import answer_of
from sglang_hydra.text.json_types import json_beside
from sglang_hydra.text.words import program

COLUMNS = tuple(Metric(*row) for row in json_beside(__file__))
"""The columns of a table of points; a column without values is omitted."""

LIMIT_SHARE = COLUMNS[-1]
_MOST_WORKLOADS = 12


class Winner(NamedTuple):
    """The best point of one kind: its title, the verdict, its metric, and the command that starts it."""

    title: str
    metric: Metric
    verdict: Best
    command: str


class Front(NamedTuple):
    """A Pareto chart: ``y`` against ``x``, all groups, and the ids of the unbeaten ones of each sweep."""

    x: Metric
    y: Metric
    groups: tuple[Group, ...]
    best: frozenset[int]


class Changed(NamedTuple):
    """One point of two sweeps: a metric before and after, the relative change, and whether that is noise.

    ``noise`` is None without enough repeats."""

    words: str
    metric: Metric
    before: float
    after: float
    change: float
    interval: Interval | None
    noise: bool | None


class Workload(NamedTuple):
    """Comparable points: their requests are alike, at any load. ``slo`` are the limits in ms to judge them by: the
    requested ones, else those of their measurement."""

    words: str
    groups: tuple[Group, ...]
    winners: tuple[Winner, ...]
    fronts: tuple[Front, ...]
    leaders: tuple[Leader, ...]
    slo: Mapping[str, float]

    @property
    def held(self) -> str:
        """Returns the number of points that hold the limits, in words; empty without limits."""
        held = sum(not misses(group, self.slo) for group in self.groups)
        return f"{held} of {len(self.groups)} points hold {slo_words(self.slo)}" if self.slo else ""


@dataclass(frozen=True)
class Report:
    """The contents for one sweep, or several side by side. ``winners`` and ``fronts`` cover all points, for programs;
    ``workloads`` are for people."""

    sweeps: tuple[SweepResults, ...]
    groups: tuple[Group, ...]
    keys: tuple[str, ...]
    columns: tuple[Metric, ...]
    winners: tuple[Winner, ...]
    fronts: tuple[Front, ...]
    changes: tuple[Changed, ...]
    throughput: Metric
    workloads: tuple[Workload, ...] = field(default=())

    @property
    def largest(self) -> list[Workload]:
        """Returns the workloads to show: those with the most points."""
        return sorted(self.workloads, key=lambda each: -len(each.groups))[:_MOST_WORKLOADS]

    @property
    def search_answers(self) -> list[str]:
        """Returns the answers of the sweeps' searches, in words."""
        return [answer_of(found) for sweep in self.sweeps for found in sweep.searches]

    def cells(self, group: Group) -> list[str]:
        """Returns the values of the varying keys for one group."""
        return [shown(group.first.settings.get(key)) for key in self.keys]


def latency_note(sweeps: Sequence[SweepResults]) -> str:
    """Says from when the latencies count: in open loops from the due time."""
    found = {latency_from(row.record) for sweep in sweeps for row in sweep.valid}
    where = " where a request rate was asked for." if "sent" in found else "; 'from sending', from when it was sent."
    since = f"due{where}" if "due" in found else "sent."
    return f"TTFT and end-to-end count from when a request was {since}" if found else ""


def make_report(sweeps: Sequence[SweepResults], slo: Mapping[str, float] | None = None) -> Report:
    """Makes the report of these sweeps. ``slo`` are limits in ms to judge the points by afterwards."""
    valid = [row for sweep in sweeps for row in sweep.valid]
    groups = grouped(valid)
    throughput = throughput_of(groups)
    return Report(
        sweeps=tuple(sweeps),
        groups=tuple(groups),
        keys=tuple(varying(valid)),
        columns=tuple(metric for metric in COLUMNS if any(group.mean(metric) is not None for group in groups)),
        winners=tuple(_winners(sweeps, groups, throughput)),
        fronts=tuple(_fronts(groups, throughput)),
        changes=tuple(_changes(sweeps, groups, throughput)),
        throughput=throughput,
        workloads=tuple(
            Workload(
                words,
                tuple(own),
                tuple(_winners(sweeps, own, throughput, slo)),
                tuple(_fronts(own, throughput)),
                tuple(leaders(own, throughput)),
                slo or measured_slo(own),
            )
            for words, own in workloads_of(groups).items()
        ),
    )


def number_cell(metric: Metric, mean: float | None) -> str:
    """Formats a mean for a table; more than 100 % of the hardware's limit is impossible and marked."""
    if mean is None:
        return ""
    return short(mean) + (" check inputs" if metric is LIMIT_SHARE and mean > 100 else "")


def shown(value: object) -> str:
    """Formats a setting's value as a user types it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def command_of(sweep: SweepResults, group: Group) -> str:
    """Returns the command that starts the server of a point: the shared words and its own, without those of the load,
    the sweep and Hydra, and with the folders of its configs."""
    own = group.first.words
    named = {key_of(word) for word in own}
    kept = server_words([*(word for word in sweep.shared if key_of(word) not in named), *own])
    flags = [flag for folder in sweep.config_dirs for flag in ("--config-dir", folder)]
    if sweep.config_name not in (None, PRIMARY_NAME):
        flags += ["--config-name", str(sweep.config_name)]
    return " ".join([program(), *(shlex.quote(word) for word in (*flags, *kept))])


def _winners(
    sweeps: Sequence[SweepResults], groups: Sequence[Group], throughput: Metric, slo: Mapping[str, float] | None = None
) -> Iterator[Winner]:
    for sweep in sweeps:
        own = [group for group in groups if group.first.sweep == sweep.name]
        called = f"{sweep.name}: " if len(sweeps) > 1 else ""
        measured = list(dict.fromkeys(words for group in own if (words := slo_of(group))))
        kinds: list[tuple[str, Metric, Sequence[Group]]] = [("highest throughput", throughput, own)]
        for words in measured:
            under = [group for group in own if slo_of(group) == words]
            kinds.append((f"highest throughput within {words}", throughput, list(filter(meets_slo, under))))
            kinds.append((f"highest goodput under {words}", GOODPUT, under))
        kinds += [("lowest median TTFT", TTFT, own), ("lowest median ITL", ITL, own)]
        if slo:  # asked for after the measurement
            within = [group for group in own if not misses(group, slo)]
            kinds.append((f"highest throughput with p99 {slo_words(slo)}", throughput, within))
        for title, metric, among in kinds:
            verdict = best(among, metric)
            if verdict is not None:
                yield Winner(called + title, metric, verdict, command_of(sweep, verdict.best))


def slo_of(group: Group) -> str:
    """Returns the SLO of the load in words; empty without one."""
    limits = slo_words(measured_slo([group]))
    share = group.first.settings.get("bench.slo.share")
    of = f" for {share:.4g} of the requests" if limits and isinstance(share, (int, float)) and share < 1 else ""
    return limits + of


def _fronts(groups: Sequence[Group], throughput: Metric) -> Iterator[Front]:
    for x in (TTFT, ITL, INTERACTIVITY):
        known = tuple(group for group in groups if group.mean(x) is not None and group.mean(throughput) is not None)
        of_sweep: dict[str, list[Group]] = {}
        for group in known:
            of_sweep.setdefault(group.first.sweep, []).append(group)
        unbeaten = (id(group) for own in of_sweep.values() for group in pareto(own, x, throughput))
        if known:
            yield Front(x, throughput, known, frozenset(unbeaten))


def _changes(sweeps: Sequence[SweepResults], groups: Sequence[Group], throughput: Metric) -> Iterator[Changed]:
    """Yields the changes of points that the first sweep shares with each later one."""
    own = {sweep.name: [group for group in groups if group.first.sweep == sweep.name] for sweep in sweeps}
    for sweep in sweeps[1:]:
        for before, group in same_points(own[sweeps[0].name], own[sweep.name]):
            for metric in (throughput, TTFT, ITL):
                old, new = before.mean(metric), group.mean(metric)
                if old and new is not None:
                    moved = difference(before.values(metric), group.values(metric))
                    noise = None if moved is None else moved.low <= 0 <= moved.high
                    where = f"{sweep.name}: {group.words}" if len(sweeps) > 2 else group.words
                    yield Changed(where, metric, old, new, new / old - 1, moved, noise)


def same_points(before: Sequence[Group], after: Sequence[Group]) -> Iterator[tuple[Group, Group]]:
    """Pairs the groups of the same point in two sweeps: with equal words, else equal in every setting that varies
    within a sweep. Differences between the sweeps as wholes (a release, its defaults) are the subject of the
    comparison."""
    typed = _unique(before, lambda group: group.first.words)
    keys = sorted({*varying([group.first for group in before]), *varying([group.first for group in after])})

    def label(group: Group) -> tuple[str, ...]:
        return tuple(shown(group.first.settings.get(key)) for key in keys)

    alike = _unique(before, label)
    for group in after:
        found = typed.get(group.first.words) or alike.get(label(group))
        if found is not None:
            yield found, group


def _unique(groups: Sequence[Group], name: Callable[[Group], tuple[str, ...]]) -> dict[tuple[str, ...], Group]:
    """Maps a name of each group to the group, without shared names."""
    counts = Counter(name(group) for group in groups)
    return {name(group): group for group in groups if counts[name(group)] == 1}
