"""Plans a sweep: judges the combinations, merges and groups them by server. Starts nothing.

    axes -> combinations -> judged -> merged by point_id -> grouped by server_id

Combinations come one at a time and are forgotten, except those that will run; a dry run keeps only ids."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.bench import LADDER
from sglang_hydra.compose.settings.nodes import Nodes, has_several_servers
from sglang_hydra.facts.machine_cache import asking_once
from sglang_hydra.fit.forecast import Forecast, coefficients
from sglang_hydra.measure.sweep.axes import combinations
from sglang_hydra.measure.sweep.grid import Grid
from sglang_hydra.measure.sweep.judging import NODE_LAUNCHER, Judge, Judged
from sglang_hydra.measure.sweep.points import Estimate, Point, Refused, ServerGroup, Source, Sweep, point_id_of
from sglang_hydra.measure.sweep.search import most_steps
from sglang_hydra.measure.sweep.setters import naming_setters, with_setters
from sglang_hydra.planning.choosing.forecast import forecast_of_plan
from sglang_hydra.planning.plan import Plan, digest
from sglang_hydra.text.findings import Finding

BEATEN = "SWP012"
"""The id that counts the points left out by ``sweep.prune=forecast``."""
Combination = tuple[tuple[Request, ...], Judged]


class Worth(NamedTuple):
    """The forecast of a point, and its competitors: points of one load, family of models and GPU class."""

    race: tuple[object, ...]
    words: str
    found: Forecast

    def loses_to(self, other: Worth) -> bool:
        """Returns whether the other is better in both output tokens/s per GPU and TPOT, by more than 90 % of the errors
        between two layouts of a model."""
        least = exp(coefficients()["errors"]["pair"])
        mine, best = self.found, other.found
        faster = mine.tpot.value > least * best.tpot.value
        return faster and best.tokens_per_gpu.value > least * mine.tokens_per_gpu.value


def forecast_of_point(plan: Plan, workload: Mapping[str, object]) -> tuple[str, Forecast] | None:
    """Returns the family of models and the forecast of ``plan`` under a load. None without a forecast, for a point that
    searches its load, and for several servers. Ignores the user's own measurements, because a resumed sweep must plan
    the same."""
    if workload["concurrency"] == LADDER or has_several_servers(plan.nodes):
        return None
    known = forecast_of_plan(replace(plan, nodes=Nodes({**plan.nodes.plain, "bench": workload})))
    return None if known.found is None or known.server is None else (known.server.shape, known.found)


def without_losers(combinations: Iterable[Combination]) -> list[Combination]:
    """Refuses the points that cannot win by the forecast (``BEATEN``); returns the others unchanged."""
    listed = list(combinations)
    races: dict[tuple[object, ...], list[Worth]] = defaultdict(list)
    worths = []
    for own, judged in listed:
        worth = _worth(own, judged)
        worths.append(worth)
        if worth is not None:
            races[worth.race].append(worth)
    result = []
    for (own, judged), worth in zip(listed, worths, strict=True):
        better = [other for other in races[worth.race] if worth.loses_to(other)] if worth is not None else []
        if worth is not None and better:
            best = max(better, key=lambda other: other.found.tokens_per_gpu.value)
            judged = replace(judged, refused=(_beaten(worth, best),))
        result.append((own, judged))
    return result


def _worth(own: tuple[Request, ...], judged: Judged) -> Worth | None:
    if judged.refused or judged.server is None or judged.workload is None:
        return None
    found = forecast_of_point(judged.server.plan, judged.workload)
    if found is None:
        return None
    words = " ".join(request.text for request in own)
    return Worth((judged.workload_id, found[0], judged.server.plan.gpu.name), words, found[1])


def _beaten(worth: Worth, best: Worth) -> Finding:
    rates = [f"{one.found.tokens_per_gpu.value:,.0f} tokens/s of a GPU" for one in (worth, best)]
    times = [f"TPOT {one.found.tpot.value * 1e3:,.1f} ms" for one in (worth, best)]
    message = f"by the forecast it cannot win: {rates[0]} at {times[0]}; {best.words}: {rates[1]} at {times[1]}"
    return Finding("error", BEATEN, message, ("sweep.prune",), "sweep.prune=null")


MOST_LISTED = 2000
"""The most points that a dry run lists; beyond that it only counts."""
_ROOT = Path("multirun")
_HOUR_S = 3600.0


@dataclass
class Outcome:
    """The result of planning all combinations. ``groups`` is empty if there are too many points to list.

    A ladder or a bisection is one point; ``further`` counts the steps that they may take beyond one each. ``estimates``
    counts points whose release was not asked, for the reason ``not_asked``."""

    grid: Grid
    total: int = 0
    kept: int = 0
    merged: int = 0
    starts: int = 0
    further: int = 0
    gpu_seconds: float = 0.0
    listed: bool = True
    left_out: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    identity: int = 0
    estimates: int = 0
    not_asked: str | None = None
    _refused: dict[str, Refused] = field(default_factory=dict)
    _servers: set[str] = field(default_factory=set)
    _points: set[int] = field(default_factory=set)
    _of_server: dict[str, tuple[ServerGroup, list[Point]]] = field(default_factory=dict)
    _most: dict[str, float] = field(default_factory=dict)

    @property
    def refused(self) -> tuple[Refused, ...]:
        """Returns the reasons for refusals, the most frequent first."""
        return tuple(sorted(self._refused.values(), key=lambda item: -item.count))

    @property
    def estimate(self) -> Estimate:
        """Returns the estimate for one server at a time, with the assumed durations of a start and a point, and every
        search at its longest."""
        settings = self.grid.settings
        seconds = self.starts * settings["start_seconds"] + (self.kept + self.further) * settings["point_seconds"]
        return Estimate(seconds / _HOUR_S, self.gpu_seconds / _HOUR_S)

    @property
    def folder(self) -> Path:
        """Returns the folder of the results: equal points share one, in any order and spelling."""
        settings = self.grid.settings
        if settings["folder"]:
            return Path(settings["folder"]).expanduser()
        digest = hashlib.sha256(f"{self.identity:016x} {self.kept}".encode()).hexdigest()
        return _ROOT / f"{settings['name']}-{digest[:8]}"

    def take(self, own: tuple[Request, ...], judged: Judged, *, merges: bool = True) -> None:
        """Counts a combination, and keeps its launchable points. Without ``merges``, differently typed words are
        different loads."""
        words = tuple(request.text for request in own)
        self.total += judged.repeats
        keeps_all = not self.grid.settings["dry_run"]
        if judged.refused or judged.server is None or judged.workload is None:
            first = judged.refused[0]
            before = self._refused.get(first.id)
            before = before or Refused(first.id, 0, words, first.message, first.hint, judged.who)
            self._refused[first.id] = replace(before, count=before.count + judged.repeats)
            if keeps_all:
                self.left_out.append((words, tuple(dict.fromkeys(finding.id for finding in judged.refused))))
            return
        server = judged.server
        if not server.plan.is_exact:
            self.estimates, self.not_asked = self.estimates + judged.repeats, server.plan.resolution.not_asked
        workload_id = judged.workload_id if merges else digest({"load": judged.workload_id, "words": words})
        if server.server_id not in self._servers:
            self._servers.add(server.server_id)
            self.starts += 1
            self.gpu_seconds += server.gpus * self.grid.settings["start_seconds"]
        steps = most_steps(self.grid.settings, judged.workload)
        for repeat in range(1, judged.repeats + 1):
            point_id = point_id_of(server.server_id, workload_id, repeat)
            number = int(point_id, 16)
            if number in self._points:
                self.merged += 1
                continue
            self._points.add(number)
            self.kept += 1
            self.identity ^= number
            self.further += steps - 1
            self.gpu_seconds += server.gpus * self.grid.settings["point_seconds"] * steps
            if self.listed:
                point = Point(words, judged.workload, repeat, server.server_id, workload_id, point_id)
                self._of_server.setdefault(server.server_id, (server.group(own), []))[1].append(point)
                if repeat == 1 and (found := forecast_of_point(server.plan, judged.workload)) is not None:
                    most = self._most.get(server.server_id, 0.0)
                    self._most[server.server_id] = max(most, found[1].tokens_per_gpu.value)
        if not keeps_all and self.kept > MOST_LISTED:
            self._of_server.clear()
            self.listed = False

    @property
    def groups(self) -> tuple[ServerGroup, ...]:
        """Returns each server with its points: first those with the highest forecast of output tokens/s per GPU, the
        others in typed order. Repeats follow after a whole round of points, so that a drift in time affects all points
        alike."""
        ids = sorted(self._of_server, key=lambda id: -self._most.get(id, 0.0))
        found = (self._of_server[id] for id in ids)
        return tuple(replace(empty, points=tuple(sorted(own, key=lambda point: point.repeat))) for empty, own in found)


def judge_of(composer: Composer, grid: Grid, seed: int | None = None, env: Mapping[str, str] | None = None) -> Judge:
    """Returns the judge of a grid's points. Raises ConfigError for an invalid constraint."""
    with naming_setters(grid.set_by):
        where = grid.settings["where"]
        gives_nodes = any(word.lstrip("+") == f"hydra/launcher={NODE_LAUNCHER}" for word in grid.hydra_words)
        return Judge(
            composer,
            grid.common,
            seed=seed,
            where=where,
            env=env,
            measured=grid.measured,
            gives_nodes=gives_nodes,
        )


def judged_points(grid: Grid, judge: Judge) -> Iterator[tuple[tuple[Request, ...], Judged]]:
    """Yields every combination with its verdict, one at a time. Asks the machine and the hub only once."""
    with asking_once():
        for requests in combinations(grid.axes):
            yield requests, judge.judge(requests)


def plan_sweep(
    composer: Composer,
    grid: Grid,
    seed: int,
    env: Mapping[str, str] | None = None,
    *,
    merges: bool = True,
    beside: Sequence[Composer] = (),
    on_progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Plans every point with the same ``seed``, and counts the refusals. ``merges`` is that of ``Outcome.take``;
    ``on_progress`` is called for each point. ``beside`` composes the other servers of an app: a point is left out if
    one of them is refused."""
    outcome = Outcome(grid)
    others = [judge_of(each, grid, seed, env) for each in beside]
    points = judged_points(grid, judge_of(composer, grid, seed, env))
    for own, first in without_losers(points) if grid.settings["prune"] else points:
        refused = (one for judge in others if (one := judge.judge(own)).refused) if not first.refused else iter(())
        outcome.take(own, next(refused, first), merges=merges)
        on_progress(outcome)
    return outcome


def sweep_of(outcome: Outcome, source: Source) -> Sweep:
    """Makes the sweep for the runner. ``source`` locates the configs; its requests become those that all points
    share."""
    grid = outcome.grid
    return Sweep(
        source=replace(source, requests=grid.common),
        words=grid.words,
        settings=grid.settings,
        groups=outcome.groups,
        total=outcome.total,
        merged=outcome.merged,
        refused=outcome.refused,
        estimate=outcome.estimate,
        folder=outcome.folder,
        hydra_words=grid.hydra_words,
        left_out=tuple(outcome.left_out),
    )


def verdict_on(outcome: Outcome) -> Finding | None:
    """Returns why the sweep does not start: it has no point, or exceeds its budget. None for a good one."""
    if outcome.kept == 0:
        reasons = ", ".join(f"{item.count} {item.id}" for item in outcome.refused)
        whole = "the one point cannot" if outcome.total == 1 else f"none of the {outcome.total} points can"
        hint = "plan -m with the same words shows every point"
        return Finding("error", "SWP007", f"{whole} be launched: {reasons}", ("sweep",), hint)
    budget, needed = outcome.grid.settings["budget_gpu_hours"], outcome.estimate.gpu_hours
    if budget is not None and needed > budget:
        message = f"the sweep takes about {needed:.2f} GPU hours, and sweep.budget_gpu_hours={budget:g} are allowed"
        hint = "fewer points, or a larger budget; sweep.start_seconds and sweep.point_seconds are what is assumed"
        finding = Finding("error", "SWP008", message, ("sweep.budget_gpu_hours",), hint)
        return with_setters([finding], outcome.grid.set_by)[0]
    return None
