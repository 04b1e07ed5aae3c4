"""Runs ``sweep.search=tpe`` here: proposal after proposal, those on the same server without starting it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.measure.sweep.job import Policy
from sglang_hydra.measure.sweep.planning import Outcome
from sglang_hydra.measure.sweep.points import Point, ServerGroup, Sweep
from sglang_hydra.measure.sweep.progress import News, Progress, named
from sglang_hydra.measure.sweep.runner import Agenda, run, without_keys, writing_alone
from sglang_hydra.measure.sweep.store import FAILED, OPEN, Store
from sglang_hydra.measure.sweep.tuning import INVALID, REFUSED, VALID, Proposal, Tuning
from sglang_hydra.text.exit_codes import INTERRUPTED
from sglang_hydra.text.screen import text, write
from sglang_hydra.text.words import plural


def run_search(sweep: Sweep, tuning: Tuning, store: Store) -> int:
    """Takes what the search proposes until it is over, and says what it found. Returns 0 when there is a best point,
    4 when there is none, 130 when it was interrupted. Raises as ``runner.run`` does."""
    code = run(replace(sweep, groups=()), partial(_Searched, tuning=tuning), store)
    if code != INTERRUPTED:
        _print_result(tuning)
    return code


class _Searched(Agenda):
    """The proposals of a search, each on its server."""

    what = "the search"

    def __init__(self, sweep: Sweep, store: Store, tuning: Tuning) -> None:
        super().__init__(sweep, store)
        self._tuning = tuning
        self._taken: Proposal | None = None
        self.counts = self

    def known(self) -> Iterable[str]:
        return list(self.store.read_sweep()["points"])

    def next(self, claims: Claims) -> ServerGroup | None:
        self._taken = self._tuning.advance()
        if self._taken is None:
            return None
        self._note(claims)
        return self._taken.group

    def more(self, group: ServerGroup, claims: Claims, policy: Policy) -> list[Point]:
        """The points of the next proposal, if the server that runs is the one that it needs."""
        failed = any(brought.state == FAILED for _, brought in self._tuning.proposals[-1:])
        if policy.over or (failed and policy.fail_fast):
            return []
        proposal = self._tuning.advance()
        if proposal is None or proposal.server.server_id != group.server_id:
            return []
        self._note(claims)
        return [point for point in proposal.points if self.store.standing(point.point_id).state == OPEN]

    def is_held_up(self, group: ServerGroup, good: bool | None) -> bool:
        return self._tuning.pending is self._taken and not self._tuning.settle()

    def count(self) -> Progress:
        """Counts measured points against all that the search may take."""
        tuning = self._tuning
        tuning.settle()
        states = [brought.state for _, brought in tuning.measured]
        best = (named(tuning.best[0].words), tuning.best[1]) if tuning.best else None
        invalid, failed = states.count(INVALID), states.count(FAILED)
        done = states.count(VALID) + invalid
        return Progress(tuning.grid.settings["trials"], done, invalid, failed, best, tuning.objective.unit)

    def news(self) -> list[News]:
        """Nothing: everything happens in this process and is reported at once."""
        return []

    def end(self, claims: Claims) -> bool:
        self._note(claims)
        self._tuning.keep(over=bool(self._tuning.stop))
        return self._tuning.best is not None

    def _note(self, claims: Claims) -> None:
        """Writes down what is measured next and what was refused, for everybody who looks at the folder."""
        tuning, outcome = self._tuning, Outcome(self._tuning.grid)
        tuning.count_refused(outcome)
        groups = (tuning.pending.group,) if tuning.pending else ()
        now = replace(self.sweep, groups=groups, refused=outcome.refused, left_out=tuple(outcome.left_out))
        with writing_alone(claims):
            self.store.begin(without_keys(now))
            tuning.keep()


def _print_result(tuning: Tuning) -> None:
    measured = len(tuning.measured)
    refused = len({proposal.key for proposal, brought in tuning.proposals if brought.state == REFUSED})
    summary = f"search over: {tuning.stop or 'it was stopped'}; {plural(measured, 'point')} measured, {refused} refused"
    lines = [[text(summary)]]
    if tuning.best is not None:
        proposal, value = tuning.best
        lines.append([text(f"  best: {named(proposal.words)}, {value:.4g} {tuning.objective.unit}", "green")])
        lines.append([text(f"  maximised was {tuning.objective}", "dim")])
    else:
        lines.append([text("  no point counts", "red")])
    write(lines)
