"""Runs a planned sweep: here, or wherever a Hydra launcher carries its jobs. One job is one server with its points.

Every runner works from the folder alone: what has a result is skipped, what another runner claims is left to it, and
what a dead one claimed is taken over. So a sweep is resumed by running it again, from anywhere.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator

from sglang_hydra.engines.planned import plan_engine
from sglang_hydra.errors import ConfigError, MachineError, SglangHydraError
from sglang_hydra.findings import Finding
from sglang_hydra.launch.signals import stopping_on_signals
from sglang_hydra.overrides import Request
from sglang_hydra.plans import Plan
from sglang_hydra.sweep.claims import Claims
from sglang_hydra.sweep.gpus import (
    GpuSets,
    baseline_of_the_dead,
    keep_baseline,
    used_mib,
    visible_gpus,
    wait_for_memory,
)
from sglang_hydra.sweep.points import Point, ServerGroup, Sweep
from sglang_hydra.sweep.progress import LiveScreen, Tally
from sglang_hydra.sweep.records import failure_record
from sglang_hydra.sweep.search import search_of
from sglang_hydra.sweep.serving import take_points
from sglang_hydra.sweep.settings_checks import check_settings
from sglang_hydra.sweep.store import DONE, FAILED, OPEN, Store
from sglang_hydra.sweep.typed_keys import without_keys
from sglang_hydra.sweep.work import Policy, Stop, Watcher, Work

FAILED_EXIT, INTERRUPTED = 4, 130

_MEMORY_S = 120.0
_POLL_S = 1.0


def run(sweep: Sweep) -> int:
    """Takes every point of the sweep that has no result yet. Returns 0 when all have one, 4 when points failed, 130
    when it was interrupted. Raises ConfigError for a folder that holds something else, MachineError for one that
    cannot be written."""
    check_settings(sweep)
    sweep = without_keys(sweep)
    store = Store(sweep.folder)
    store.check()
    with writing_to(store):
        with Claims(store.folder / "claims") as claims:
            _begin(sweep, store, claims)
        interrupted = _run_jobs(sweep, store)
    if interrupted:
        return INTERRUPTED
    counts = Tally(sweep, store).count()
    return 0 if counts.done == counts.total else FAILED_EXIT


@contextlib.contextmanager
def writing_to(store: Store) -> Iterator[None]:
    """Says of a full disk or a folder without permission what it means, instead of a traceback."""
    try:
        yield
    except OSError as failure:
        why = failure.strerror or str(failure)
        message = f"{store.folder} cannot be written: {why}; every result that is in it is whole"
        hint = "with room on the disk, the same command goes on where this one ended"
        raise MachineError(Finding("error", "STO004", message, ("sweep.folder",), hint)) from failure


def open_points(sweep: Sweep, store: Store, group: ServerGroup) -> list[Point]:
    """The points of a server that are still to be taken."""
    found = []
    for point in group.points:
        search = search_of(sweep.settings, point)
        state = search.state(store) if search else store.state(point.point_id)
        if state.state == OPEN:
            found.append(point)
    return found


def run_group(
    sweep: Sweep,
    store: Store,
    claims: Claims,
    group: ServerGroup,
    policy: Policy,
    watcher: Watcher,
    more: Callable[[], list[Point]] = list,
) -> bool | None:
    """Takes the open points of one server, and what ``more`` then finds for it. False when one failed; None when
    another runner is at it."""
    if not open_points(sweep, store, group):
        return True
    claim = claims.take(f"servers/{group.server_id}")
    if claim is None:
        return None
    try:
        # Once more: whoever held the claim before may have taken them.
        points = open_points(sweep, store, group)
        for point in points:
            store.tidy(point.point_id)
        with _gpus_of(sweep, claims, group, policy, watcher) as gpus:
            if gpus is None or not points:
                return True
            plan = _plan_here(sweep, group, gpus)
            baseline = used_mib(gpus)
            keep_baseline(claims, baseline)
            work = Work(store, plan, points, policy, watcher, gpus, group.gpus or None)
            work.holds = lambda: claims.holds(claim)
            work.search = lambda point: search_of(sweep.settings, point)
            work.more = more
            work.settle = lambda: _wait_for_memory(baseline, group, watcher, policy)
            work.plan_again = lambda: _plan_here(sweep, group, gpus)
            return take_points(work)
    except SglangHydraError as error:
        _fail_all(sweep, store, group, error, watcher)
        return False
    finally:
        with contextlib.suppress(OSError):  # on a full disk the end of this process says it
            claims.release(claim)


def policy_of(sweep: Sweep, stop: Stop, stop_at: float | None = None) -> Policy:
    """How the settings ask points to be run."""
    return Policy(sweep.settings["retries"], sweep.settings["fail_fast"], stop_at, stop)


@contextlib.contextmanager
def writing_alone(claims: Claims) -> Iterator[None]:
    """One runner at a time writes what all share."""
    while (claim := claims.take("sweep")) is None:
        time.sleep(_POLL_S / 10)
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
        found = store.state(point_id)
        state = found.record["state"] if found.state == DONE and found.record else found.state
        if state in wanted and state in (FAILED, "invalid"):
            store.reopen(point_id)


def _run_jobs(sweep: Sweep, store: Store) -> bool:
    from sglang_hydra.sweep.launching import launcher_of, run_launched

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
                time.sleep(_POLL_S)
    return stop.asked


def _plan_here(sweep: Sweep, group: ServerGroup, gpus: tuple[int, ...]) -> Plan:
    """The plan of a server as it starts here: on a free port, on its own GPUs. Neither changes its identity.

    Raises ConfigError where it would be another server than was planned.
    """
    place = f"sweep on {socket.gethostname()}"
    requests = [*group.requests, Request.typed("port", _free_port(), place)]
    if gpus:
        requests.append(Request.typed("base_gpu_id", visible_gpus(None).index(gpus[0]), place))
    plan = sweep.source.plan(requests)
    starts = plan_engine(plan.nodes["engine"], embedded_first=True).name
    if starts != plan.engine.name:
        message = f"{plan.engine.name} is planned and not installed here: {starts} would be measured in its place"
        hint = f"engine={starts} plans that; or engine.python=<an interpreter that has {plan.engine.name}>"
        raise ConfigError(Finding("error", "RNR001", message, ("engine",), hint))
    if plan.server_id != group.server_id:
        message = f"planned here, server {group.server_id} becomes {plan.server_id}"
        hint = "do this machine's SGLANG_* variables, packages or presets differ from where the sweep was planned?"
        raise ConfigError(Finding("error", "RNR001", message, ("sweep",), hint))
    return plan


def _fail_all(sweep: Sweep, store: Store, group: ServerGroup, error: SglangHydraError, watcher: Watcher) -> None:
    for point in open_points(sweep, store, group):
        failure = failure_record(point, "not_planned", error, retryable=False, final=True)
        store.add_failure(point.point_id, failure)
        watcher.point(point, "failed", error.findings[0].message)


@contextlib.contextmanager
def _gpus_of(
    sweep: Sweep, claims: Claims, group: ServerGroup, policy: Policy, watcher: Watcher
) -> Iterator[tuple[int, ...] | None]:
    """A set of GPUs for this server, waiting while others have them; None when the time is over before. Where a runner
    died with a server on them, its memory is waited for, too."""
    if not group.gpus:
        yield ()
        return
    sets = GpuSets(claims, visible_gpus(sweep.source.plan(group.requests).gpu.count or group.gpus))
    each = group.gpus // max(1, group.nodes)
    if each > len(sets):
        message = f"the server takes {each} GPUs, and {len(sets)} can be seen here"
        raise MachineError(Finding("error", "RNR004", message, ("tp_size", "gpu.count"), f"tp_size={len(sets) or 1}"))
    found = sets.take(each)
    while found is None and not policy.over:
        time.sleep(_POLL_S)
        found = sets.take(each)
    try:
        if found:
            _wait_for_memory(baseline_of_the_dead(claims, found[0], found[1]), group, watcher, policy)
        yield found[0] if found else None
    finally:
        if found:
            with contextlib.suppress(OSError):
                sets.give_back(found[1])


def _wait_for_memory(baseline: dict[int, float], group: ServerGroup, watcher: Watcher, policy: Policy) -> None:
    left = wait_for_memory(baseline, _MEMORY_S, over=lambda: policy.stop.asked)
    if left and not policy.stop.asked:
        watcher.server(group.server_id, f"memory that was not given back, in MiB by GPU: {left}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
