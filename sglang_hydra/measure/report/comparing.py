"""Compares points: groups repeats, finds Pareto fronts and the best point within an SLO, and separates noise from
change. One workload has requests of one kind, at any concurrency or request rate."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

from sglang_hydra.measure.report.reading import Row

_LEVEL = 0.95
_NORMAL = 1.959964
_STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""The 97.5 % quantiles of Student's t for 1 to 10 degrees of freedom."""


class Metric(NamedTuple):
    """A number of a point: the key of its measure, its name, its better direction, its unit."""

    key: str
    words: str
    more_is_better: bool
    unit: str


THROUGHPUT = Metric("output_throughput", "output tokens/s", True, "tokens/s")
THROUGHPUT_PER_GPU = Metric("output_throughput_per_gpu", "output tokens/s per GPU", True, "tokens/s/GPU")
TTFT = Metric("ttft_ms.p50", "median TTFT", False, "ms")
ITL = Metric("itl_ms.p50", "median ITL", False, "ms")
INTERACTIVITY = Metric("interactivity", "tokens/s per user", True, "tokens/s")
GOODPUT = Metric("goodput", "goodput", True, "requests/s")


@dataclass(frozen=True)
class Group:
    """The valid repeats of one point: equal server, equal load."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> Row:
        return self.rows[0]

    @property
    def words(self) -> str:
        """Returns the overrides of this point that the other points do not share."""
        return " ".join(self.first.words) or "the only point"

    def values(self, metric: Metric) -> list[float]:
        return [value for row in self.rows if (value := row.measure(metric.key)) is not None]

    def mean(self, metric: Metric) -> float | None:
        """Returns the mean over the repeats; None without values."""
        values = self.values(metric)
        return fmean(values) if values else None

    def interval(self, metric: Metric) -> Interval | None:
        """Returns the interval of the mean; None for a single repeat."""
        return interval(self.values(metric))


class Interval(NamedTuple):
    """The 95 % confidence interval of a number, from the spread of its repeats."""

    low: float
    high: float


class Best(NamedTuple):
    """The best group of a metric. ``sure``: no other group equals it within the noise; ``why`` explains this."""

    best: Group
    sure: bool
    why: str


def grouped(rows: Iterable[Row]) -> list[Group]:
    """Groups valid rows by point, with their repeats, in the order of the first ones."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.state == "valid":
            found.setdefault((row.sweep, *row.same), []).append(row)
    return [Group(tuple(rows)) for rows in found.values()]


def throughput_of(groups: Sequence[Group]) -> Metric:
    """Returns the throughput per GPU if every point has GPUs, else that of the whole server."""
    per_gpu = all(group.mean(THROUGHPUT_PER_GPU) is not None for group in groups)
    return THROUGHPUT_PER_GPU if groups and per_gpu else THROUGHPUT


def pareto(groups: Sequence[Group], x: Metric, y: Metric) -> list[Group]:
    """Returns the groups that no other beats in both metrics, sorted by x. Of equal groups the first one stays."""
    means = ((group, group.mean(x), group.mean(y)) for group in groups)
    points = [(group, gx, gy) for group, gx, gy in means if gx is not None and gy is not None]
    best_first = sorted(points, key=lambda item: (_cost(x, item[1]), _cost(y, item[2])))
    front: list[tuple[Group, float, float]] = []
    for item in best_first:
        if not front or _cost(y, item[2]) < _cost(y, front[-1][2]):
            front.append(item)
    return [group for group, _, _ in sorted(front, key=lambda item: item[1])]


def best(groups: Sequence[Group], metric: Metric) -> Best | None:
    """Returns the group with the best mean; None without values.

    Differences within the noise decide nothing: the best is sure only if the interval of its difference to every other
    group excludes zero, which requires repeats."""
    candidates = [group for group in groups if group.mean(metric) is not None]
    if not candidates:
        return None
    found = min(candidates, key=lambda group: _cost(metric, group.mean(metric) or 0.0))
    others = [group for group in candidates if group is not found]
    if not others:
        return Best(found, True, "it is the only one")
    alone = [group for group in candidates if len(group.values(metric)) < 2]
    if alone:
        return Best(found, False, "a single repeat does not measure the noise: bench.repeats=3 or more does")
    rivals = sum(not _apart(found, group, metric) for group in others)
    if rivals:
        return Best(found, False, f"{rivals} of the others are no worse than it, within the noise")
    return Best(found, True, "every other one is worse by more than the noise")


def interval(values: Sequence[float]) -> Interval | None:
    """Returns Student's interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, half = fmean(values), _student(len(values) - 1) * math.sqrt(variance(values) / len(values))
    # No measure is negative, so no mean is either.
    low = mean - half if min(values) < 0 else max(0.0, mean - half)
    return Interval(low, mean + half)


def difference(before: Sequence[float], after: Sequence[float], count: int = 1) -> Interval | None:
    """Returns Student's interval of the means' difference, after - before; None if either has fewer than two values.
    With ``count`` differences judged together, all intervals hold with a probability of 95 % (Bonferroni)."""
    if len(before) < 2 or len(after) < 2:
        return None
    z = _NORMAL if count == 1 else NormalDist().inv_cdf(1 - (1 - _LEVEL) / 2 / count)
    half = _student(len(before) + len(after) - 2, z) * _error(before, after)
    moved = fmean(after) - fmean(before)
    return Interval(moved - half, moved + half)


def power(before: Sequence[float], after: Sequence[float], limit: float, loss: float, count: int = 1) -> float | None:
    """Returns the probability of detecting a worsening by ``loss``, a share of the mean before, with the same number of
    repeats and the same noise: the mean must move by more than ``limit`` and by more than half the interval of
    ``difference``. Assumes normal means. None if either has fewer than two values."""
    interval = difference(before, after, count)
    if interval is None:
        return None
    was = abs(fmean(before))
    spread = _error(before, after) / was
    needed = max(limit, (interval.high - interval.low) / 2 / was)
    return 1 - NormalDist(loss, spread).cdf(needed) if spread else float(loss > needed)


def meets_slo(group: Group) -> bool:
    """Returns whether every repeat met the SLO of its measurement."""
    return all(row.measures.get("slo_met") for row in group.rows)


def _apart(best: Group, other: Group, metric: Metric) -> bool:
    found = difference(other.values(metric), best.values(metric))
    return found is not None and not found.low <= 0 <= found.high


def _error(before: Sequence[float], after: Sequence[float]) -> float:
    """Returns the standard error of the difference of two means, with Student's pooled variance."""
    freedom = len(before) + len(after) - 2
    pooled = ((len(before) - 1) * variance(before) + (len(after) - 1) * variance(after)) / freedom
    return math.sqrt(pooled * (1 / len(before) + 1 / len(after)))


def _student(freedom: int, z: float = _NORMAL) -> float:
    """Returns the quantile of Student's t that corresponds to ``z`` of the normal distribution; outside the table of
    97.5 % uses the first two terms of its expansion."""
    if z == _NORMAL and freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _cost(metric: Metric, value: float) -> float:
    return -value if metric.more_is_better else value


_LOADS = {"bench.concurrency": ("concurrency", ""), "bench.request_rate": ("requests/s", "/s")}
"""The settings that define a point's load: in words, and the unit beside a mark."""
_LENGTHS = ("bench.input_len", "bench.output_len")
_SLO_NAMES = {"ttft": "TTFT", "itl": "ITL", "e2e": "end-to-end"}
_LIMIT = re.compile(r"\s*(ttft|itl|e2e)(?:_ms)?\s*=\s*(\d+(?:\.\d+)?)\s*(ms|s|)\s*", re.IGNORECASE)


class Leader(NamedTuple):
    """The best server at one load, by each metric; None for an unmeasured metric."""

    load: str
    verdicts: tuple[Best | None, ...]


def workloads_of(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups the points by their workload in words, in the order of the first ones."""
    found: dict[tuple[tuple[str, str], ...], list[Group]] = {}
    for group in groups:
        found.setdefault(_shape(group), []).append(group)
    common = set(next(iter(found), ())).intersection(*found)
    differ = {item[0] for shape in found for item in shape if item not in common}
    shown = {key for shape in found for key, _ in shape if key in differ or key in _LENGTHS}
    return {", ".join(f"{key[6:]} {value}" for key, value in shape if key in shown): of for shape, of in found.items()}


def load_of_point(group: Group) -> tuple[float, str, str]:
    """Returns a point's load as a sort key, as its mark's label, and in words."""
    for key, (words, unit) in _LOADS.items():
        value = group.first.settings.get(key)
        if isinstance(value, (int, float)):
            return value, f"{value:g}{unit}", f"{words} {value:g}" if not unit else f"{value:g} {words}"
    return 0.0, "", ""


def key_of(word: str) -> str:
    return word.lstrip("+~").partition("=")[0].partition("@")[0]


def server_words(words: Sequence[str]) -> list[str]:
    """Removes the overrides of the load, the sweep and Hydra."""
    return [word for word in words if re.split(r"[./]", key_of(word))[0] not in ("bench", "sweep", "hydra")]


def servers_of(groups: Sequence[Group]) -> dict[str, str]:
    """Maps the id of each server to its name: its overrides without those of the load, or else its model. Servers of
    one sweep never share a name; equally typed servers of different sweeps do."""
    names: dict[str, str] = {}
    taken: dict[tuple[str, str], str] = {}
    for group in groups:
        row = group.first
        name = " ".join(server_words(row.words)) or str(row.settings.get("model_path", "the server"))
        if taken.setdefault((row.sweep, name), row.server_id) != row.server_id:
            name += f" ({row.server_id[:8]})"
        names.setdefault(row.server_id, name)
    return names


def leaders(groups: Sequence[Group], throughput: Metric) -> list[Leader]:
    """Returns the best servers at each load that several servers have; nothing for a single server."""
    at = {id(group): load_of_point(group)[::2] for group in groups}
    loads = groupby(sorted(groups, key=lambda group: at[id(group)]), key=lambda group: at[id(group)])
    return [
        Leader(words, tuple(best(of, metric) for metric in (throughput, TTFT, ITL)))
        for (_, words), of in ((load, list(found)) for load, found in loads)
        if len({(group.first.sweep, group.first.server_id) for group in of}) > 1
    ]


def read_slo(text: str) -> dict[str, float] | None:
    """Parses ``ttft=500ms,itl=30ms`` to ``{"ttft_ms": 500.0, "itl_ms": 30.0}``; None for other text."""
    found = [_LIMIT.fullmatch(part) for part in text.split(",")]
    limits = {each[1].lower() + "_ms": float(each[2]) * (1000 if each[3] == "s" else 1) for each in found if each}
    return limits if len(limits) == len(found) and all(limits.values()) else None


def slo_words(slo: Mapping[str, float]) -> str:
    return ", ".join(f"{_SLO_NAMES[name[:-3]]} <= {limit:g} ms" for name, limit in slo.items())


def measured_slo(groups: Sequence[Group]) -> dict[str, float]:
    """Returns the limits under which all these points were measured; {} if they differ."""
    names = [f"{name}_ms" for name in _SLO_NAMES]
    asked = [{name: group.first.settings.get(f"bench.slo.{name}") for name in names} for group in groups]
    limits = [{name: limit for name, limit in each.items() if isinstance(limit, (int, float))} for each in asked]
    return limits[0] if limits and all(each == limits[0] for each in limits) else {}


def misses(group: Group, slo: Mapping[str, float]) -> bool:
    """Returns whether a point misses the limits: request by request if it was measured under them, else by the 99th
    percentiles. Unmeasured numbers miss nothing."""
    if slo and slo == measured_slo([group]):
        return not meets_slo(group)
    means = {name: group.mean(Metric(f"{name}.p99", "", False, "ms")) for name in slo}
    return any((mean := means[name]) is not None and mean > limit for name, limit in slo.items())


def _shape(group: Group) -> tuple[tuple[str, str], ...]:
    settings = group.first.settings.items()
    return tuple(sorted((key, str(value)) for key, value in settings if key.startswith("bench.") and key not in _LOADS))
