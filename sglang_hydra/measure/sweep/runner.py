"""Runs a planned sweep, here or by the jobs of a Hydra launcher. One job is one server with its points.

Every runner reads only the folder: it skips points with a result, leaves points that another runner claims, and takes
over claims of dead runners. Running a sweep again, from anywhere, resumes it."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sglang_hydra.arguments.secrets import hide_typed_keys
from sglang_hydra.compose.overrides import Request
from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.measure.sweep.job import Stop
from sglang_hydra.measure.sweep.launching import launcher_of, run_launched
from sglang_hydra.measure.sweep.points import ServerGroup, Sweep
from sglang_hydra.measure.sweep.progress import LiveScreen, Tally
from sglang_hydra.measure.sweep.search import search_of
from sglang_hydra.measure.sweep.server_points import CLAIM_S, policy_of, run_group, writing_to
from sglang_hydra.measure.sweep.settings_checks import check_settings
from sglang_hydra.measure.sweep.store import FAILED, Store
from sglang_hydra.run.launch.signals import stopping_on_signals
from sglang_hydra.text.exit_codes import INTERRUPTED, SERVER_FAILED


def run(sweep: Sweep) -> int:
    """Measures every point of the sweep without a result. Returns 0 when all have one, 4 when points failed, 130 after
    an interrupt. Raises ConfigError for a folder with other content, MachineError for one that cannot be written."""
    check_settings(sweep)
    sweep = _without_keys(sweep)
    store = Store(sweep.folder)
    with writing_to(store):
        store.check()
        with Claims(store.folder / "claims") as claims, _writing_alone(claims):
            _begin(sweep, store)
        launcher = launcher_of(sweep)
        interrupted = _run_here(sweep, store) if launcher is None else run_launched(sweep, store, launcher)
        if interrupted:
            return INTERRUPTED
        counts = Tally(sweep, store).count()
        return 0 if counts.done == counts.total else SERVER_FAILED


@contextlib.contextmanager
def _writing_alone(claims: Claims) -> Iterator[None]:
    """Lets only one runner at a time write the shared files."""
    while (claim := claims.take("sweep")) is None:
        time.sleep(CLAIM_S / 10)
    try:
        yield
    finally:
        claims.release(claim)


def _begin(sweep: Sweep, store: Store) -> None:
    """Records the plan, and sets aside the results to measure again."""
    store.begin(sweep)
    wanted = {FAILED, "invalid"}.intersection(sweep.settings["rerun"])

    def reopen(point_ids: Iterable[str]) -> None:
        for point_id in point_ids:
            if store.standing(point_id).outcome in wanted:
                store.reopen(point_id)

    reopen(point.point_id for point in sweep.points() if wanted)
    for search in filter(None, (search_of(sweep.settings, point) for point in sweep.points() if wanted)):
        reopen((store.read_search(search.id) or {"steps": ()})["steps"])
        store.reopen_search(search.id)


def _run_here(sweep: Sweep, store: Store) -> bool:
    """Measures one server after the other in this process. Retries a server of another runner after the others. Returns
    whether it was interrupted."""
    stop = Stop()
    policy = policy_of(sweep, stop)
    waiting, passed = deque(sweep.groups), 0
    with (
        LiveScreen(Tally(sweep, store)) as screen,
        Claims(store.folder / "claims") as claims,
        stopping_on_signals(stop, "the sweep"),
    ):
        while waiting and not policy.over:
            group = waiting.popleft()
            good = run_group(sweep, store, claims, group, policy, screen)
            if good is False and policy.fail_fast:
                break
            passed = passed + 1 if good is None else 0
            if good is None:
                waiting.append(group)
            if waiting and passed >= len(waiting) and not policy.over:
                screen.server(group.server_id, "another runner works on it")
                time.sleep(CLAIM_S)
    return stop.asked


def _without_keys(sweep: Sweep) -> Sweep:
    """Replaces every typed API key in the sweep by its reference, because files keep words and a job may carry them
    elsewhere. Puts the key itself into this process's environment, which jobs inherit."""

    def hidden(group: ServerGroup) -> ServerGroup:
        points = tuple(replace(point, words=_hidden(point.words)) for point in group.points)
        return replace(group, requests=tuple(map(_without_key, group.requests)), points=points)

    source = replace(sweep.source, requests=tuple(map(_without_key, sweep.source.requests)))
    left_out = tuple((_hidden(words), ids) for words, ids in sweep.left_out)
    words, groups = _hidden(sweep.words), tuple(map(hidden, sweep.groups))
    return replace(sweep, source=source, groups=groups, words=words, left_out=left_out)


def _hidden(words: tuple[str, ...]) -> tuple[str, ...]:
    changed = list(words)
    hide_typed_keys(changed, os.environ)
    return tuple(changed)


def _without_key(request: Request) -> Request:
    (text,) = _hidden((request.text,))
    return request if text == request.text else Request(text, request.place, request.layer)
