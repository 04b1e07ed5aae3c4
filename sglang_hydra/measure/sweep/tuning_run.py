"""Runs ``sweep.search=tpe`` here: proposal after proposal, those on the same server without starting it again."""

from __future__ import annotations

import time
from dataclasses import replace

from sglang_hydra.measure.sweep.api_keys import without_keys
from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.measure.sweep.job import Policy, Stop
from sglang_hydra.measure.sweep.points import Point, Refused, Sweep
from sglang_hydra.measure.sweep.progress import LiveScreen, News, Progress, named
from sglang_hydra.measure.sweep.runner import reopen, writing_alone
from sglang_hydra.measure.sweep.server_points import policy_of, run_group, writing_to
from sglang_hydra.measure.sweep.settings_checks import check_settings
from sglang_hydra.measure.sweep.store import FAILED, OPEN, Store
from sglang_hydra.measure.sweep.tuning import INVALID, REFUSED, VALID, Proposal, Tuning
from sglang_hydra.run.launch.signals import stopping_on_signals
from sglang_hydra.text.exit_codes import INTERRUPTED, SERVER_FAILED
from sglang_hydra.text.screen import text, write
from sglang_hydra.text.words import plural

_POLL_S = 1.0


def run_search(sweep: Sweep, tuning: Tuning, store: Store) -> int:
    """Takes what the search proposes until it is over, and says what it found. Returns 0 when there is a best point,
    4 when there is none, 130 when it was interrupted. Raises as ``runner.run`` does."""
    check_settings(sweep)
    sweep = without_keys(replace(sweep, groups=()))
    with writing_to(store):
        store.check()
        with Claims(store.folder / "claims") as claims, writing_alone(claims):
            store.begin(sweep)
            reopen(store, store.read_sweep()["points"], sweep.settings["rerun"])
        interrupted = _run(sweep, tuning, store)
        if not interrupted:
            with Claims(store.folder / "claims") as claims:
                _note(sweep, tuning, store, claims)
            tuning.keep(over=bool(tuning.stop))
    if interrupted:
        return INTERRUPTED
    _print_result(tuning)
    return 0 if tuning.best else SERVER_FAILED


class _Counts:
    """How far a search is: its measured points against all that it may take."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning

    def count(self) -> Progress:
        """Returns the current counts."""
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


def _run(sweep: Sweep, tuning: Tuning, store: Store) -> bool:
    """Says whether it was interrupted."""
    stop = Stop()
    policy = policy_of(sweep, stop)
    with (
        LiveScreen(_Counts(tuning)) as screen,
        Claims(store.folder / "claims") as claims,
        stopping_on_signals(stop, "the search"),
    ):
        while not policy.over and (proposal := tuning.advance()) is not None:
            group = proposal.group

            def more(server_id: str = group.server_id) -> list[Point]:
                return _next_on(server_id, sweep, tuning, store, claims, policy)

            _note(sweep, tuning, store, claims)
            good = run_group(sweep, store, claims, group, policy, screen, more)
            if good is False and policy.fail_fast:
                return stop.asked
            if tuning.pending is proposal and not tuning.settle() and not policy.over:
                screen.server(group.server_id, "another runner is at it")
                time.sleep(_POLL_S)
    return stop.asked


def _next_on(server_id: str, sweep: Sweep, tuning: Tuning, store: Store, claims: Claims, policy: Policy) -> list[Point]:
    """The points of the next proposal, if the server that runs is the one that it needs."""
    failed = any(brought.state == FAILED for _, brought in tuning.proposals[-1:])
    if policy.over or (failed and policy.fail_fast):
        return []
    proposal = tuning.advance()
    if proposal is None or proposal.server.server_id != server_id:
        return []
    _note(sweep, tuning, store, claims)
    return [point for point in proposal.points if store.standing(point.point_id).state == OPEN]


def _note(sweep: Sweep, tuning: Tuning, store: Store, claims: Claims) -> None:
    """Writes down what is measured next and what was refused, for everybody who looks at the folder."""
    refused: dict[str, Refused] = {}
    left_out = {}
    refusals: list[Proposal] = [proposal for proposal, brought in tuning.proposals if brought.state == REFUSED]
    for proposal in {proposal.key: proposal for proposal in refusals}.values():
        first = proposal.judged.refused[0]
        before = refused.get(first.id) or Refused(
            first.id, 0, proposal.words, first.message, first.hint, proposal.judged.who
        )
        refused[first.id] = replace(before, count=before.count + proposal.judged.repeats)
        left_out[proposal.words] = tuple(dict.fromkeys(finding.id for finding in proposal.judged.refused))
    groups = (tuning.pending.group,) if tuning.pending else ()
    now = replace(sweep, groups=groups, refused=tuple(refused.values()), left_out=tuple(left_out.items()))
    with writing_alone(claims):
        store.begin(without_keys(now))
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
