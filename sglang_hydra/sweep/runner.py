"""Runs a planned sweep: here, or wherever a Hydra launcher carries its jobs. One job is one server with its points.

Every runner works from the folder alone: what has a result is skipped, what another runner claims is left to it, and
what a dead one claimed is taken over. So a sweep is resumed by running it again, from anywhere.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sglang_hydra.errors import ConfigError, SglangHydraError
from sglang_hydra.findings import Finding
from sglang_hydra.launch.signals import stopping_on_signals
from sglang_hydra.overrides import Request
from sglang_hydra.plans import Plan
from sglang_hydra.sweep.claims import Claim, Claims
from sglang_hydra.sweep.gpus import GpuSets, used_mib, wait_for_memory
from sglang_hydra.sweep.points import Point, ServerGroup, Sweep
from sglang_hydra.sweep.progress import LiveScreen, Printed, progress_of, watching
from sglang_hydra.sweep.serving import Policy, Watcher, Work, take_points
from sglang_hydra.sweep.store import DONE, FAILED, OPEN, Store

FAILED_EXIT, INTERRUPTED = 4, 130
RERUN = ("failed", "invalid")

_MEMORY_S = 120.0
_GPU_POLL_S = 1.0
_STALLED_ROUNDS = 2


def run(sweep: Sweep) -> int:
    """Takes every point of the sweep that has no result yet. Returns 0 when all have one, 4 when points failed, 130
    when it was interrupted. Raises ConfigError for a folder that holds something else."""
    _check_settings(sweep.settings)
    store = Store(sweep.folder)
    store.begin(sweep)
    for point in sweep.points():
        state = store.state(point.point_id)
        if state.state == DONE and state.record and state.record["state"] in sweep.settings["rerun"]:
            store.reopen(point.point_id)
    launcher = _launcher_of(sweep)
    interrupted = _run_here(sweep, store) if launcher is None else _run_launched(sweep, store, launcher)
    return INTERRUPTED if interrupted else _exit_code(sweep, store)


def open_points(sweep: Sweep, store: Store, group: ServerGroup) -> list[Point]:
    """The points of a server that are to be taken: those without a result, failed ones only where that is asked for."""
    wanted = {OPEN, FAILED} if "failed" in sweep.settings["rerun"] else {OPEN}
    return [point for point in group.points if store.state(point.point_id).state in wanted]


@dataclass(frozen=True)
class GroupJob:
    """The task that a Hydra launcher runs: job number N takes the points of ``groups[N]``. It can be pickled."""

    sweep: Sweep
    groups: tuple[str, ...]
    minutes: float | None = None

    def __call__(self, config: Any) -> None:
        from hydra.core.hydra_config import HydraConfig

        began = time.monotonic()
        number = int(HydraConfig.get().job.num)
        group = next(item for item in self.sweep.groups if item.server_id == self.groups[number])
        store = Store(self.sweep.folder)
        stop_at = began + self.minutes * 60 - _reserve_s(self.sweep) if self.minutes else None
        stopped: list[bool] = []
        with Claims(store.folder / "claims") as claims, stopping_on_signals(lambda: stopped.append(True), loud=False):
            policy = _policy(self.sweep, stop_at, stopped)
            run_group(self.sweep, store, claims, group, policy, Printed(sys.stderr))


def run_group(
    sweep: Sweep, store: Store, claims: Claims, group: ServerGroup, policy: Policy, watcher: Watcher
) -> bool | None:
    """Takes the open points of one server. False when one failed; None when another runner is at it."""
    if not open_points(sweep, store, group):
        return True
    claim = claims.take(f"servers/{group.server_id}")
    if claim is None:
        return None
    held: list[Claim] = []
    try:
        # Once more: whoever held the claim before may have taken them.
        points = open_points(sweep, store, group)
        gpus, held = _wait_for_gpus(sweep, claims, group, policy)
        if gpus is None or not points:
            return True
        plan = _plan_here(sweep, group, gpus)
        baseline = used_mib(gpus)
        good = take_points(Work(store, plan, points, policy, watcher, gpus, group.gpus or None))
        left = wait_for_memory(baseline, _MEMORY_S)
        if left:
            watcher.server(group.server_id, f"memory that was not given back, in MiB by GPU: {left}")
        return good
    except SglangHydraError as error:
        for point in open_points(sweep, store, group):
            said = [finding.to_json() for finding in error.findings]
            failure = {"kind": "not_planned", "retryable": False, "findings": said, "log_tail": []}
            store.add_failure(point.point_id, {"server_id": point.server_id, "words": list(point.words), **failure})
            watcher.point(point, "failed", error.findings[0].message if error.findings else str(error))
        return False
    finally:
        GpuSets(claims, ()).give_back(held)
        claims.release(claim)


def _run_here(sweep: Sweep, store: Store) -> bool:
    """One server after the other, in this process. Says whether it was interrupted."""
    stopped: list[bool] = []
    policy = _policy(sweep, None, stopped)
    waiting = list(sweep.groups)
    with (
        LiveScreen(sweep, store) as screen,
        Claims(store.folder / "claims") as claims,
        stopping_on_signals(lambda: stopped.append(True), "the sweep"),
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
                    return False
            waiting = again
            if waiting and not policy.over:
                screen.server(waiting[0].server_id, "another runner is at it")
                time.sleep(_GPU_POLL_S)
    return bool(stopped)


def _run_launched(sweep: Sweep, store: Store, launcher: Any) -> bool:
    """Rounds of jobs, until nothing is open or a round has brought nothing."""
    assert sweep.running is not None
    minutes = sweep.running.config.hydra.launcher.get("timeout_min")
    carried = replace(sweep, running=None)
    stalled = 0
    while stalled < _STALLED_ROUNDS:
        groups = [group for group in sweep.groups if open_points(sweep, store, group)]
        if not groups:
            break
        before = sum(len(open_points(sweep, store, group)) for group in groups)
        job = GroupJob(carried, tuple(group.server_id for group in groups), minutes)
        launcher.setup(hydra_context=sweep.running.context, task_function=job, config=sweep.running.config)
        try:
            with watching(sweep, store):
                launcher.launch([[] for _ in groups], initial_job_idx=0)
        except KeyboardInterrupt:
            return True
        except Exception as failure:  # noqa: BLE001 - whatever a launcher raises for a lost job: the folder knows
            print(f"a job was lost: {type(failure).__name__}: {failure}", file=sys.stderr)
        after = sum(len(open_points(sweep, store, group)) for group in sweep.groups)
        stalled = stalled + 1 if after >= before else 0
    return False


def _launcher_of(sweep: Sweep) -> Any:
    """The Hydra launcher that was asked for; None for the basic one, whose jobs run here anyway."""
    if sweep.running is None or sweep.running.config is None:
        return None
    target = str(sweep.running.config.hydra.launcher._target_)
    if target.endswith("BasicLauncher"):
        return None
    from hydra.core.plugins import Plugins
    from omegaconf import open_dict

    config = sweep.running.config
    if sweep.settings["max_jobs"]:
        with open_dict(config.hydra.launcher):
            key = "array_parallelism" if "submitit" in target else "n_jobs"
            config.hydra.launcher[key] = sweep.settings["max_jobs"]
    return Plugins.instance().instantiate_launcher(
        hydra_context=sweep.running.context, task_function=sweep.running.task_function, config=config
    )


def _plan_here(sweep: Sweep, group: ServerGroup, gpus: Sequence[int]) -> Plan:
    """The plan of a server as it starts here: on a free port, on its own GPUs. Neither changes its identity.

    Raises ConfigError where it would be another server than was planned.
    """
    place = f"sweep on {socket.gethostname()}"
    requests = [*group.requests, Request.typed("port", _free_port(), place)]
    if gpus:
        requests.append(Request.typed("base_gpu_id", gpus[0], place))
    plan = sweep.source.plan(requests)
    if plan.server_id != group.server_id:
        message = f"planned here, server {group.server_id} becomes {plan.server_id}"
        hint = "do this machine's SGLANG_* variables, packages or presets differ from where the sweep was planned?"
        raise ConfigError(Finding("error", "RNR001", message, ("sweep",), hint))
    return plan


def _wait_for_gpus(sweep: Sweep, claims: Claims, group: ServerGroup, policy: Policy) -> tuple[Any, list[Any]]:
    """A set of GPUs for this server, waiting while others have them; None when the time is over before."""
    if not group.gpus:
        return (), []
    each = group.gpus // max(1, group.nodes)
    sets = GpuSets(claims, range(_gpus_here(sweep, group)))
    while not policy.over:
        found = sets.take(each)
        if found is not None:
            return found
        time.sleep(_GPU_POLL_S)
    return None, []


def _gpus_here(sweep: Sweep, group: ServerGroup) -> int:
    plan = sweep.source.plan(group.requests)
    return int(plan.gpu.count or group.gpus)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _policy(sweep: Sweep, stop_at: float | None, stopped: list[bool]) -> Policy:
    settings = sweep.settings
    return Policy(settings["retries"], settings["fail_fast"], stop_at, lambda: bool(stopped))


def _reserve_s(sweep: Sweep) -> float:
    """What is left of a job's time when no new point is begun: a point's assumed time, and the stop of the server."""
    return float(sweep.settings["point_seconds"]) * 1.5 + 30


def _check_settings(settings: Any) -> None:
    odd = [state for state in settings["rerun"] if state not in RERUN]
    if odd:
        message = f"sweep.rerun names {odd[0]!r}; it may name {', '.join(RERUN)}"
        raise ConfigError(Finding("error", "RNR002", message, ("sweep.rerun",), "sweep.rerun=[failed]"))


def _exit_code(sweep: Sweep, store: Store) -> int:
    counts = progress_of(sweep, store)
    return 0 if counts.done == counts.total else FAILED_EXIT


__all__ = ["GroupJob", "open_points", "run", "run_group"]
