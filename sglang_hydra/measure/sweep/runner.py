"""Runs a planned sweep: here, or wherever a Hydra launcher carries its jobs. One job is one server with its points.

Every runner works from the folder alone: what has a result is skipped, what another runner claims is left to it, and
what a dead one claimed is taken over. So a sweep is resumed by running it again, from anywhere.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator

from sglang_hydra.measure.sweep.api_keys import without_keys
from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.measure.sweep.job import Stop
from sglang_hydra.measure.sweep.points import Sweep
from sglang_hydra.measure.sweep.progress import LiveScreen, Tally
from sglang_hydra.measure.sweep.search import search_of
from sglang_hydra.measure.sweep.server_points import POLL_S, policy_of, run_group, writing_to
from sglang_hydra.measure.sweep.settings_checks import check_settings
from sglang_hydra.measure.sweep.store import DONE, FAILED, Store
from sglang_hydra.run.launch.signals import stopping_on_signals
from sglang_hydra.text.exit_codes import INTERRUPTED, SERVER_FAILED


def run(sweep: Sweep) -> int:
    """Takes every point of the sweep that has no result yet. Returns 0 when all have one, 4 when points failed, 130
    when it was interrupted. Raises ConfigError for a folder that holds something else, MachineError for one that
    cannot be written."""
    check_settings(sweep)
    sweep = without_keys(sweep)
    store = Store(sweep.folder)
    with writing_to(store):
        store.check()
        with Claims(store.folder / "claims") as claims:
            _begin(sweep, store, claims)
        interrupted = _run_jobs(sweep, store)
    if interrupted:
        return INTERRUPTED
    counts = Tally(sweep, store).count()
    return 0 if counts.done == counts.total else SERVER_FAILED


@contextlib.contextmanager
def writing_alone(claims: Claims) -> Iterator[None]:
    """One runner at a time writes what all share."""
    while (claim := claims.take("sweep")) is None:
        time.sleep(POLL_S / 10)
    try:
        yield
    finally:
        claims.release(claim)


def _begin(sweep: Sweep, store: Store, claims: Claims) -> None:
    """Writes down what was planned, and sets aside what is to be taken again."""
    with writing_alone(claims):
        store.begin(sweep)
        wanted = sweep.settings["rerun"]
        reopen(store, [point.point_id for point in sweep.points()], wanted)
        for search in filter(None, (search_of(sweep.settings, point) for point in sweep.points() if wanted)):
            reopen(store, (store.read_search(search.id) or {"steps": ()})["steps"], wanted)
            store.reopen_search(search.id)


def reopen(store: Store, point_ids: Iterable[str], wanted: Collection[str]) -> None:
    """Sets aside what is to be taken again, once for this run."""
    for point_id in point_ids:
        found = store.standing(point_id)
        state = found.record["state"] if found.state == DONE and found.record else found.state
        if state in wanted and state in (FAILED, "invalid"):
            store.reopen(point_id)


def _run_jobs(sweep: Sweep, store: Store) -> bool:
    from sglang_hydra.measure.sweep.launching import launcher_of, run_launched

    launcher = launcher_of(sweep)
    return _run_here(sweep, store) if launcher is None else run_launched(sweep, store, launcher)


def _run_here(sweep: Sweep, store: Store) -> bool:
    """One server after the other, in this process. Says whether it was interrupted."""
    stop = Stop()
    policy = policy_of(sweep, stop)
    waiting = list(sweep.groups)
    with (
        LiveScreen(Tally(sweep, store)) as screen,
        Claims(store.folder / "claims") as claims,
        stopping_on_signals(stop, "the sweep"),
    ):
        while waiting and not policy.over:
            again = []
            for group in waiting:
                if policy.over:
                    break
                good = run_group(sweep, store, claims, group, policy, screen)
                if good is None:
                    again.append(group)
                elif not good and policy.fail_fast:
                    return stop.asked
            waiting = again
            if waiting and not policy.over:
                screen.server(waiting[0].server_id, "another runner is at it")
                time.sleep(POLL_S)
    return stop.asked
