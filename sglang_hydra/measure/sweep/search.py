"""Expands a point into a search: a ladder climbs until nothing is gained, a bisection finds the highest load that meets
the SLO. Each step is a normal point with its own id and result in the report.

A search asks its strategy for the next value and looks its result up in the store, which holds its whole state. A
repeated search therefore never measures a step twice."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sglang_hydra.compose.settings.bench import LADDER
from sglang_hydra.compose.settings.sweep import BISECT
from sglang_hydra.measure.sweep.points import Point, point_id_of, workload_id_of
from sglang_hydra.measure.sweep.store import DONE, FAILED, OPEN, SEARCH_SCHEMA, State, Store, planned_record
from sglang_hydra.text.json_types import JsonObject

HIGHEST = 4096
"""The highest value tried unless the user asks for more."""


def most_steps(settings: JsonObject, workload: Mapping[str, object]) -> int:
    """Returns the most measurements of one planned point: all rungs of a ladder, ``sweep.search_steps`` of a bisection,
    or one."""
    if workload["concurrency"] == LADDER:
        return HIGHEST.bit_length()
    return max(1, int(settings["search_steps"])) if settings["search"] == BISECT else 1


class Tried(NamedTuple):
    """The result of one value. ``good``: its measurement is valid and meets the SLO, if any. ``throughput`` is in
    output tokens/s; ``why`` says what was not good."""

    value: float
    good: bool
    throughput: float
    why: str = ""


@dataclass(frozen=True)
class Ladder:
    """Tries powers of two, until one is not good or brings less than ``gain`` more output than the best before."""

    gain: float

    def ask(self, tried: Sequence[Tried]) -> float | None:
        if not tried:
            return 1
        last, before = tried[-1], max((item.throughput for item in tried[:-1]), default=0.0)
        saturated = len(tried) > 1 and last.throughput <= before * (1 + self.gain)
        return None if not last.good or saturated or last.value >= HIGHEST else last.value * 2

    def best(self, tried: Sequence[Tried]) -> Tried | None:
        return max((item for item in tried if item.good), key=lambda item: item.throughput, default=None)


@dataclass(frozen=True)
class Bisection:
    """Finds the highest good value from ``low`` to ``high``: doubles until one is not good, then halves the interval,
    until whole numbers are neighbours, rates are within ``precision``, or ``steps`` values were tried."""

    low: float
    high: float
    steps: int
    whole: bool
    precision: float = 0.05

    def ask(self, tried: Sequence[Tried]) -> float | None:
        if not tried:
            return self.low
        good = max((item.value for item in tried if item.good), default=None)
        bad = min((item.value for item in tried if not item.good), default=None)
        if len(tried) >= self.steps or good is None or good >= self.high:
            return None
        if bad is None:
            return min(good * 2, self.high)
        if bad <= good or (bad - good <= 1 if self.whole else bad <= good * (1 + self.precision)):
            return None
        middle = (good + bad) / 2
        return int(middle) if self.whole else round(middle, 4)

    def best(self, tried: Sequence[Tried]) -> Tried | None:
        return max((item for item in tried if item.good), key=lambda item: item.value, default=None)


Strategy = Ladder | Bisection
"""Chooses the next value: ``ask`` returns None once ``tried`` suffices; a strategy has no state. ``best`` is the result
of the search, None without a good value."""


@dataclass(frozen=True)
class Search:
    """One search: its planned ``point``, the key whose values it tries, and its strategy."""

    point: Point
    kind: str
    key: str
    strategy: Strategy

    @property
    def id(self) -> str:
        """Returns an id that is equal for the same search of the same point."""
        return hashlib.sha256(f"{self.kind} {self.key} {self.strategy} {self.point.point_id}".encode()).hexdigest()[:16]

    def state(self, store: Store) -> State:
        """Returns done for a finished search, failed if its server did not start, else open."""
        record = store.read_search(self.id)
        if record is not None and record["over"]:
            best = record["best"]
            return State(DONE, store.standing(best).record if best else {"state": "invalid", "measures": {}})
        failed = store.standing(self.point.point_id)
        # A step may be the planned point itself: its end is not the search's.
        own = record is None or self.point.point_id not in record["steps"]
        return failed if own and failed.state == FAILED else State(OPEN)

    def next_step(self, store: Store) -> Point | None:
        """Returns the next step to measure, None for a finished search. The report includes the step from now on."""
        steps, tried = self._so_far(store)
        value = self.strategy.ask(tried)
        if value is None:
            return None
        step = self._step(value)
        self._keep(store, [*steps, step])
        return step

    def finish(self, store: Store) -> tuple[str, str]:
        """Writes the result of the search. Returns the state of the point and the reason."""
        steps, tried = self._so_far(store)
        best = self.strategy.best(tried)
        self._keep(store, steps, best=best, over=True)
        if best is None:
            return "invalid", f"{self.key}={tried[0].value:g} already fails: {tried[0].why}"
        beyond = next((item for item in tried if not item.good and item.value > best.value), None)
        why = f"; {self.key}={beyond.value:g}: {beyond.why}" if beyond else ""
        return "valid", f"{self.key}={best.value:g} with {best.throughput:.1f} output tokens/s{why}"

    def _so_far(self, store: Store) -> tuple[list[Point], list[Tried]]:
        """Returns every finished step, in the order of the strategy."""
        steps: list[Point] = []
        tried: list[Tried] = []
        while (value := self.strategy.ask(tried)) is not None:
            step = self._step(value)
            state = store.standing(step.point_id)
            if state.state == OPEN:
                break
            steps.append(step)
            tried.append(_tried(value, state))
        return steps, tried

    def _step(self, value: float) -> Point:
        name = self.key.partition(".")[2]
        if name == "concurrency":
            value = int(value)
        workload = {**self.point.workload, name: value}
        workload_id = workload_id_of(workload)
        words = (*(word for word in self.point.words if word.partition("=")[0] != self.key), f"{self.key}={value:g}")
        id = point_id_of(self.point.server_id, workload_id, self.point.repeat)
        return replace(self.point, words=words, workload=workload, workload_id=workload_id, point_id=id)

    def _keep(self, store: Store, steps: Sequence[Point], best: Tried | None = None, over: bool = False) -> None:
        record = {
            "schema": SEARCH_SCHEMA,
            "search": self.kind,
            "key": self.key,
            "planned": self.point.point_id,
            "over": over,
            "best": self._step(best.value).point_id if best else None,
            "steps": {step.point_id: planned_record(step) for step in steps},
        }
        store.keep_search(self.id, record)


def search_of(settings: JsonObject, point: Point) -> Search | None:
    """Returns the search of a point; None for a point that is measured directly."""
    if point.workload["concurrency"] == LADDER:
        return Search(point, LADDER, "bench.concurrency", Ladder(settings["ladder_gain"]))
    if settings["search"] != BISECT:
        return None
    key = settings["search_key"]
    ends = settings["search_min"] or 1, settings["search_max"] or HIGHEST
    return Search(point, BISECT, key, Bisection(*ends, settings["search_steps"], key == "bench.concurrency"))


def _tried(value: float, state: State) -> Tried:
    record = state.record or {}
    if state.state == FAILED:
        return Tried(value, False, 0.0, f"it failed: {record.get('kind')}")
    measures = record["measures"]
    throughput = measures.get("output_throughput") or 0.0
    if record["state"] != "valid":
        return Tried(value, False, throughput, "; ".join(record["reasons"]))
    if measures.get("slo_met") is False:
        return Tried(value, False, throughput, f"{measures['slo_share']:.1%} of the requests meet the SLO")
    return Tried(value, True, throughput)
