"""``sweep.search=tpe``: one proposal of Optuna's after the other, each judged, looked up, or handed out to be measured.

What a proposal brought is read from the sweep's folder and nowhere else. So the same command again makes the same
proposals up to where the last one ended, and measures none of them twice.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.sweep import TPE
from sglang_hydra.facts.machine_cache import asking_once
from sglang_hydra.measure.sweep.grid import Grid
from sglang_hydra.measure.sweep.judging import Judged, PlannedServer
from sglang_hydra.measure.sweep.planning import Outcome, judge_of
from sglang_hydra.measure.sweep.points import Point, ServerGroup, has_slo, point_id_of
from sglang_hydra.measure.sweep.records import planned_record
from sglang_hydra.measure.sweep.required_packages import check_packages
from sglang_hydra.measure.sweep.settings_checks import check_search, check_values
from sglang_hydra.measure.sweep.store import FAILED, OPEN, SEARCH_SCHEMA, Store
from sglang_hydra.measure.sweep.tpe import dimensions_of
from sglang_hydra.text.words import plural

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

AT_RANDOM = 10
"""So many points are drawn at random before any is drawn where others were good: the sampler's own default."""

MOST_IDLE = 100
"""So many proposals in a row that bring nothing new (refused, or known already) end a search."""

REFUSED, VALID, INVALID = "refused", "valid", "invalid"
_CONSTRAINT = "launchable"


class Brought(NamedTuple):
    """The result of a proposal: valid with its ``value``, invalid, failed, or refused; ``why`` it does not count.
    ``hopeless``: it would not be better another time."""

    state: str
    value: float | None = None
    why: str = ""
    hopeless: bool = False


@dataclass(frozen=True)
class Proposal:
    """One combination of values that was drawn. ``points`` has one for each repeat, none where it is refused."""

    requests: tuple[Request, ...]
    judged: Judged
    points: tuple[Point, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(request.text for request in self.requests)

    @property
    def key(self) -> str:
        """Equal for proposals that are the same measurement, or that set the same and are refused."""
        return self.points[0].point_id if self.points else " ".join(self.words)

    @property
    def server(self) -> PlannedServer:
        assert self.judged.server is not None
        return self.judged.server

    @property
    def group(self) -> ServerGroup:
        """The server to start for it, with its points."""
        return self.server.group(self.requests, self.points)


class Objective:
    """The number that is maximised: goodput where there is an SLO, else output tokens a second; for each GPU, if there
    are any."""

    def __init__(self, workload: Mapping[str, Any]) -> None:
        self._name = "goodput" if has_slo(workload) else "output_throughput"
        self.unit = "requests/s within the SLO" if has_slo(workload) else "output tokens/s"

    def value(self, measures: Mapping[str, Any], gpus: int) -> float | None:
        """The value of one measurement on so many GPUs (0 on a CPU)."""
        found = measures.get(self._name)
        return None if found is None else float(found) / max(1, gpus)

    def __str__(self) -> str:
        what = f"goodput, {self.unit}" if self._name == "goodput" else f"{self.unit}, for there is no SLO (bench.slo)"
        return f"{what}; divided by the GPUs of the server where there are any"


class Tuning:
    """A search as far as it has come. ``store`` is None for one that is only looked at: nothing is measured then, and
    what it says of its first proposals is what it will draw at random.

    Raises ConfigError for what cannot be searched, MachineError where Optuna is not installed.
    """

    def __init__(
        self,
        composer: Composer,
        grid: Grid,
        seed: int,
        store: Store | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        check_search(composer, grid)
        self.grid = grid
        self.dimensions = dimensions_of(grid.axes)
        check_values(composer, grid, self.dimensions)
        self.objective = Objective(composer.compose(grid.common).nodes.plain["bench"])
        self.proposals: list[tuple[Proposal, Brought]] = []
        self.pending: Proposal | None = None
        self.stop = ""
        self._trial: Trial | None = None
        self._store = store
        self._judge = judge_of(composer, grid, seed, env)
        self._study = _new_study(grid.settings["seed"])
        self._known: set[str] = set()
        self._idle = 0

    @cached_property
    def space(self) -> str:
        """Equal for searches that draw from the same and maximise the same, in whatever order it was typed."""
        common = sorted(request.text for request in self.grid.common if not _ends_only(request.text))
        varied = [dimension.shown for dimension in self.dimensions]
        return json.dumps([TPE, self.grid.settings["seed"], common, varied])

    @property
    def id(self) -> str:
        return hashlib.sha256(self.space.encode()).hexdigest()[:16]

    @property
    def measured(self) -> list[tuple[Proposal, Brought]]:
        """Every proposal that brought a result or a failure, once."""
        once = {proposal.key: (proposal, brought) for proposal, brought in self.proposals if proposal.points}
        return list(once.values())

    @property
    def best(self) -> tuple[Proposal, float] | None:
        """The proposal with the highest value."""
        valid = [(proposal, brought.value) for proposal, brought in self.measured if brought.value is not None]
        return max(valid, key=lambda item: item[1], default=None)

    def advance(self) -> Proposal | None:
        """Tells all that is known, until a proposal has to be measured: it is returned, and the same one until it has
        been. None once the search is over; ``stop`` then says why."""
        with asking_once():
            while self.pending is not None or self._goes_on():
                if self.pending is None:
                    self._propose()
                if not self.settle():
                    return self.pending
        return None

    def settle(self) -> bool:
        """Whether the result of the pending proposal is known; the study gets it then."""
        if self.pending is None:
            return True
        brought = self._brought(self.pending)
        if brought is not None:
            self.tell(brought)
        return brought is not None

    def tell(self, brought: Brought) -> None:
        """Gives the result of the pending proposal to the study."""
        proposal, trial = self.pending, self._trial
        assert proposal is not None
        assert trial is not None
        new = proposal.key not in self._known and bool(proposal.points)
        self._idle = 0 if new else self._idle + 1
        self._known.add(proposal.key)
        if brought.value is not None:
            trial.set_constraint(_CONSTRAINT, 0.0)
            self._study.tell(trial, brought.value)
        elif brought.hopeless:  # what is like it is to be kept away from
            trial.set_constraint(_CONSTRAINT, 1.0)
            self._study.tell(trial, 0.0)
        else:
            from optuna.trial import TrialState

            self._study.tell(trial, state=TrialState.FAIL)
        self.proposals.append((proposal, brought))
        self.pending = self._trial = None

    def count_refused(self, outcome: Outcome) -> None:
        """Counts every combination that was refused, once."""
        refused = {proposal.key: proposal for proposal, _ in self.proposals if not proposal.points}
        for proposal in refused.values():
            outcome.take(proposal.requests, proposal.judged)

    def record(self, over: bool) -> dict[str, Any]:
        """The record in the folder, for later readers; continuing the search does not need it."""
        every = [*self.proposals, *([(self.pending, Brought(OPEN))] if self.pending else [])]
        best = self.best
        return {
            "schema": SEARCH_SCHEMA,
            "search": TPE,
            "key": None,
            "planned": self.id,
            "over": over,
            "best": best[0].key if best else None,
            "maximised": str(self.objective),
            "trials": [
                {
                    "words": list(proposal.words),
                    "state": brought.state,
                    "value": brought.value,
                    "points": [point.point_id for point in proposal.points],
                }
                for proposal, brought in every
            ],
            "steps": {point.point_id: planned_record(point) for proposal, _ in every for point in proposal.points},
        }

    def keep(self, *, over: bool = False) -> None:
        """Writes the record into the folder."""
        if self._store is not None:
            self._store.keep_search(self.id, self.record(over))

    @cached_property
    def size(self) -> int | None:
        """The number of combinations; None where they cannot be counted."""
        sizes = [dimension.size for dimension in self.dimensions]
        return None if None in sizes else math.prod(size or 0 for size in sizes)

    def _goes_on(self) -> bool:
        distinct = len({proposal.words for proposal, _ in self.proposals})
        if len(self.measured) >= self.grid.settings["trials"]:
            self.stop = f"sweep.trials={self.grid.settings['trials']} points are measured"
        elif self.size is not None and distinct >= self.size:
            self.stop = f"all {self.size} combinations are known"
        elif self._idle >= MOST_IDLE:
            self.stop = f"{MOST_IDLE} proposals in a row brought nothing new"
        else:
            return True
        return False

    def _propose(self) -> None:
        self._trial = trial = self._study.ask({item.name: item.distribution for item in self.dimensions})
        drawn = [item.requests(trial.params[item.name]) for item in self.dimensions]
        requests = tuple(request for requests in drawn for request in requests)
        judged = self._judge.judge(requests)
        points: list[Point] = []
        if not judged.refused and judged.server is not None and judged.workload is not None:
            words, server_id = tuple(request.text for request in requests), judged.server.server_id
            for repeat in range(1, judged.repeats + 1):
                point_id = point_id_of(server_id, judged.workload_id, repeat)
                points.append(Point(words, judged.workload, repeat, server_id, judged.workload_id, point_id))
        self.pending = Proposal(requests, judged, tuple(points))

    def _brought(self, proposal: Proposal) -> Brought | None:
        """What is known of a proposal; None while a repeat of it has no end."""
        if not proposal.points:
            return Brought(REFUSED, why=proposal.judged.refused[0].message, hopeless=True)
        if self._store is None:
            return None
        states = [self._store.standing(point.point_id) for point in proposal.points]
        if any(state.state == OPEN for state in states):
            return None
        records = [state.record or {} for state in states]
        failed = next((record for record, state in zip(records, states, strict=True) if state.state == FAILED), None)
        if failed is not None:
            return Brought(FAILED, why=str(failed["kind"]), hopeless=not failed["retryable"])
        invalid = next((record for record in records if record["state"] != VALID), None)
        if invalid is not None:
            return Brought(INVALID, why="; ".join(invalid["reasons"]))
        gpus = proposal.server.gpus
        values = [self.objective.value(record["measures"], gpus) for record in records]
        reached = [value for value in values if value is not None]
        return Brought(VALID, sum(reached) / len(reached)) if reached else Brought(INVALID, why="nothing was measured")


def _new_study(seed: int) -> Study:
    """A study in memory: the same results in the same order make it again. Raises MachineError without Optuna."""
    check_packages(f"sweep.search={TPE}", "optuna", extra="search")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=AT_RANDOM)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _ends_only(word: str) -> bool:
    """Whether a word says where results go or how much is done, and not what is searched."""
    key = word.partition("=")[0].lstrip("+~")
    return key.startswith(("sweep.", "hydra")) and key not in ("sweep.where",)


def plan_search(composer: Composer, grid: Grid, seed: int, env: Mapping[str, str] | None = None) -> Outcome:
    """The first proposals of a search, which depend on no result: those drawn at random, and more until one of them can
    be launched. Nothing is started. Raises ConfigError and MachineError as ``Tuning`` does."""
    tuning = Tuning(composer, grid, seed, env=env)
    outcome = Outcome(grid, space=tuning.space)
    seen: set[str] = set()
    running = ""
    while len(tuning.proposals) < AT_RANDOM or not seen:
        proposal = tuning.advance()
        if proposal is None:
            break
        if proposal.key not in seen:
            seen.add(proposal.key)
            outcome.take(proposal.requests, proposal.judged, starts=proposal.server.server_id != running)
            running = proposal.server.server_id
        tuning.tell(Brought(OPEN))
    tuning.count_refused(outcome)
    trials = grid.settings["trials"]
    most = trials if tuning.size is None else min(trials, tuning.size)
    outcome.share = min(1.0, len(seen) / most) if seen else 1.0
    outcome.search = (
        ("draws from", "; ".join(dimension.shown for dimension in tuning.dimensions)),
        ("maximises", str(tuning.objective)),
        ("ends after", f"{plural(most, 'measured point')} at the latest (sweep.trials); below are the first proposals"),
    )
    return outcome
