"""Runs a planned sweep: here, or wherever a Hydra launcher carries its jobs. One job is one server with its points.

Every runner works from the folder alone: what has a result is skipped, what another runner claims is left to it, and
what a dead one claimed is taken over. So a sweep is resumed by running it again, from anywhere.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial

from sglang_hydra.arguments.secrets import hide_typed_keys
from sglang_hydra.compose.overrides import Request
from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.measure.sweep.job import Policy, Stop
from sglang_hydra.measure.sweep.points import Point, ServerGroup, Sweep
from sglang_hydra.measure.sweep.progress import Counts, LiveScreen, Tally
from sglang_hydra.measure.sweep.search import search_of
from sglang_hydra.measure.sweep.server_points import POLL_S, policy_of, run_group, writing_to
from sglang_hydra.measure.sweep.settings_checks import check_settings
from sglang_hydra.measure.sweep.store import FAILED, Store
from sglang_hydra.run.launch.signals import stopping_on_signals
from sglang_hydra.text.exit_codes import INTERRUPTED, SERVER_FAILED


class Agenda:
    """What a runner takes here, one server after the other: those that were planned. One that another runner is at
    comes once more after the others. ``counts`` says how far it is."""

    what = "the sweep"

    def __init__(self, sweep: Sweep, store: Store) -> None:
        self.sweep, self.store = sweep, store
        self.counts: Counts = Tally(sweep, store)
        self._waiting = deque(sweep.groups)
        self._passed = 0

    def known(self) -> Iterable[str]:
        """The points that ``sweep.rerun`` may set aside."""
        return [point.point_id for point in self.sweep.points()]

    def next(self, claims: Claims) -> ServerGroup | None:
        """The server to take now; None when nothing is left."""
        return self._waiting.popleft() if self._waiting else None

    def more(self, group: ServerGroup, claims: Claims, policy: Policy) -> list[Point]:
        """Further points for the server that runs."""
        return []

    def is_held_up(self, group: ServerGroup, good: bool | None) -> bool:
        """Whether nothing can be taken until another runner is done, after ``group`` was tried."""
        if good is None:
            self._waiting.append(group)
        self._passed = self._passed + 1 if good is None else 0
        return bool(self._waiting) and self._passed >= len(self._waiting)

    def end(self, claims: Claims) -> bool:
        """Whether all is done; called once, when nothing was interrupted."""
        counts = self.counts.count()
        return counts.done == counts.total


def run(sweep: Sweep, agenda_of: Callable[[Sweep, Store], Agenda] = Agenda, store: Store | None = None) -> int:
    """Takes every point of the sweep that has no result yet. Returns 0 when all have one, 4 when points failed, 130
    when it was interrupted. Raises ConfigError for a folder that holds something else, MachineError for one that
    cannot be written."""
    check_settings(sweep)
    sweep = without_keys(sweep)
    store = store or Store(sweep.folder)
    agenda = agenda_of(sweep, store)
    with writing_to(store):
        store.check()
        with Claims(store.folder / "claims") as claims:
            _begin(agenda, claims)
        if _run_jobs(agenda):
            return INTERRUPTED
        with Claims(store.folder / "claims") as claims:
            return 0 if agenda.end(claims) else SERVER_FAILED


@contextlib.contextmanager
def writing_alone(claims: Claims) -> Iterator[None]:
    """One runner at a time writes what all share."""
    while (claim := claims.take("sweep")) is None:
        time.sleep(POLL_S / 10)
    try:
        yield
    finally:
        claims.release(claim)


def _begin(agenda: Agenda, claims: Claims) -> None:
    """Writes down what was planned, and sets aside what is to be taken again."""
    sweep, store = agenda.sweep, agenda.store
    with writing_alone(claims):
        store.begin(sweep)
        wanted = sweep.settings["rerun"]
        reopen(store, agenda.known(), wanted)
        for search in filter(None, (search_of(sweep.settings, point) for point in sweep.points() if wanted)):
            reopen(store, (store.read_search(search.id) or {"steps": ()})["steps"], wanted)
            store.reopen_search(search.id)


def reopen(store: Store, point_ids: Iterable[str], wanted: Collection[str]) -> None:
    """Sets aside what is to be taken again, once for this run."""
    for point_id in point_ids:
        state = store.standing(point_id).outcome
        if state in wanted and state in (FAILED, "invalid"):
            store.reopen(point_id)


def _run_jobs(agenda: Agenda) -> bool:
    from sglang_hydra.measure.sweep.launching import launcher_of, run_launched

    launcher = launcher_of(agenda.sweep)
    return _run_here(agenda) if launcher is None else run_launched(agenda.sweep, agenda.store, launcher)


def _run_here(agenda: Agenda) -> bool:
    """One server after the other, in this process. Says whether it was interrupted."""
    sweep, store, stop = agenda.sweep, agenda.store, Stop()
    policy = policy_of(sweep, stop)
    with (
        LiveScreen(agenda.counts) as screen,
        Claims(store.folder / "claims") as claims,
        stopping_on_signals(stop, agenda.what),
    ):
        while not policy.over and (group := agenda.next(claims)) is not None:
            more = partial(agenda.more, group, claims, policy)
            good = run_group(sweep, store, claims, group, policy, screen, more)
            if good is False and policy.fail_fast:
                break
            if agenda.is_held_up(group, good) and not policy.over:
                screen.server(group.server_id, "another runner is at it")
                time.sleep(POLL_S)
    return stop.asked


def without_keys(sweep: Sweep) -> Sweep:
    """The sweep with every API key that was typed replaced by its reference: words are kept in files, and a job may be
    carried elsewhere as one. The key itself goes into this process's environment, which jobs inherit."""
    source = replace(sweep.source, requests=tuple(_without_key(request) for request in sweep.source.requests))
    groups = tuple(
        replace(
            group,
            requests=tuple(_without_key(request) for request in group.requests),
            points=tuple(replace(point, words=_hidden(point.words)) for point in group.points),
        )
        for group in sweep.groups
    )
    left_out = tuple((_hidden(words), ids) for words, ids in sweep.left_out)
    return replace(sweep, source=source, groups=groups, words=_hidden(sweep.words), left_out=left_out)


def _hidden(words: tuple[str, ...]) -> tuple[str, ...]:
    changed = list(words)
    hide_typed_keys(changed, os.environ)
    return tuple(changed)


def _without_key(request: Request) -> Request:
    (text,) = _hidden((request.text,))
    return request if text == request.text else Request(text, request.place, request.layer)
