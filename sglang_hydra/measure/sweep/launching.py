"""Runs a sweep's servers as jobs of a Hydra launcher: processes of joblib or submitit, jobs of Slurm.

A launcher gets only the number of jobs. Each job takes the points of its server from the folder and leaves their
results there, so the launcher's own bookkeeping does not matter (a killed, preempted or cancelled job, a failed node):
after every round the folder shows the open points, which are launched again until rounds bring nothing."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import re
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sglang_hydra.measure.periodic import Repeating
from sglang_hydra.measure.sweep.claims import Claim, Claims
from sglang_hydra.measure.sweep.job import Policy, Stop, Watcher
from sglang_hydra.measure.sweep.points import ServerGroup, Sweep
from sglang_hydra.measure.sweep.progress import FolderScreen, Printed
from sglang_hydra.measure.sweep.server_points import open_points, policy_of, run_group, writing_to
from sglang_hydra.measure.sweep.store import FAILED, Store
from sglang_hydra.run.launch.signals import stopping_on_signals
from sglang_hydra.run.launch.slurm.states import cancel, run_slurm
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

SLURM = "SlurmLauncher"
"""The class of submitit's launcher for Slurm."""
LOOK_S = 0.5

_SLURM_LOOK_S = 3.0
_STOP_S = 60.0
_JOB_FOLDER = re.compile(r"(\d+)(?:_\d+)?")


class Round:
    """One call of a launcher, in a thread, because a launcher may wait for ever for a job whose end it never learns:
    Slurm without accounting forgets cancelled jobs. Each of the ``count`` jobs runs ``task``, and ends once
    ``stop_file`` exists."""

    def __init__(self, sweep: Sweep, launcher: Any, task: Callable[[Any], None], count: int, stop_file: Path) -> None:
        self._sweep, self._launcher = sweep, launcher
        self._task, self._count, self._stop_file = task, count, stop_file
        self._slurm = type(launcher).__name__ == SLURM
        self._before = set(self._slurm_jobs())
        self._thread = threading.Thread(target=self._launch, name="sweep-launcher", daemon=True)
        self._failure: BaseException | None = None

    def run(self, stop: Stop) -> None:
        """Runs the round. Returns when none of its jobs can still be running or waiting."""
        self._stop_file.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        ends_at = None
        while self._goes_on():
            if stop.asked and ends_at is None:
                ends_at = time.monotonic() + _STOP_S
                self._stop_file.touch()
                for job in self._slurm_jobs() - self._before:
                    cancel(job)
            if ends_at is not None and time.monotonic() > ends_at:
                break
            self._thread.join(_SLURM_LOOK_S if self._slurm else LOOK_S)
        if not self._thread.is_alive():
            self._stop_file.unlink(missing_ok=True)
        if self._failure is not None and not stop.asked:
            self._report_failure()

    def _goes_on(self) -> bool:
        """Returns whether a job of this round waits or runs in Slurm; before the first one, and without Slurm, whether
        the launcher runs. A silent Slurm has jobs."""
        jobs = self._slurm_jobs() - self._before
        if not jobs:
            return self._thread.is_alive()
        asked = run_slurm("squeue", "--noheader", "--jobs", ",".join(sorted(jobs)), "--format", "%T")
        if asked is None or asked.stdout.strip():
            return True
        # Slurm's controller forgets a job some minutes after its end.
        return asked.returncode != 0 and "Invalid job id" not in asked.stderr

    def _launch(self) -> None:
        running = self._sweep.running
        assert running is not None
        self._launcher.setup(hydra_context=running.context, task_function=self._task, config=running.config)
        try:
            for result in self._launcher.launch([[] for _ in range(self._count)], initial_job_idx=0):
                error = getattr(result, "_return_value", None)
                if isinstance(error, BaseException):
                    self._failure = error
        except BaseException as failure:  # noqa: BLE001 - whatever a launcher raises for a lost job: the folder knows
            self._failure = failure

    def _report_failure(self) -> None:
        failure = self._failure
        if not self._slurm_jobs() - self._before and self._slurm and not isinstance(failure, MachineError):
            message = f"the jobs were not submitted: {' '.join(str(failure).split())}"
            hint = "hydra.launcher.partition=..., hydra.launcher.account=...: what sbatch needs here"
            raise MachineError(Finding("error", "RNR006", message, ("hydra.launcher",), hint)) from failure
        reason = " ".join(str(failure).split())[:300]
        Printed(sys.stderr).server("job", f"lost, what it left open is taken again: {type(failure).__name__}: {reason}")

    def _slurm_jobs(self) -> set[str]:
        """Returns the numbers of the jobs that submitit submitted from here: it makes a folder for each submitted job,
        and one for each task of an array."""
        folder = self._sweep.running.config.hydra.launcher.get("submitit_folder") if self._sweep.running else None
        if not folder or not self._slurm:
            return set()
        with contextlib.suppress(OSError):
            found = [_JOB_FOLDER.fullmatch(path.name) for path in Path(str(folder)).parent.iterdir()]
            return {match[1] for match in found if match}
        return set()


_STALLED_ROUNDS = 2


@dataclass(frozen=True)
class GroupJob:
    """The task that a launcher runs: job number N takes the points of ``groups[N]``. It can be pickled.

    ``minutes`` is the job's walltime: it begins no point that might end after it. The job ends once ``stop_file``
    exists. ``silent``: its output would mix with that of the command, which reads all from the folder."""

    sweep: Sweep
    groups: tuple[str, ...]
    stop_file: Path
    minutes: float | None = None
    silent: bool = False

    def __call__(self, config: Any) -> None:
        from hydra.core.hydra_config import HydraConfig

        if int(os.environ.get("SLURM_PROCID", "0")) > 0:
            return  # on several nodes the first task measures: its servers are steps of the job
        began = time.monotonic()
        for name in ("httpx", "httpcore"):
            # Hydra's log has every message of every package; a line per request would affect the measurement.
            logging.getLogger(name).setLevel(logging.WARNING)
        number = int(HydraConfig.get().job.num)
        group = next(item for item in self.sweep.groups if item.server_id == self.groups[number])
        store = Store(self.sweep.folder)
        stop = Stop()
        stop_at = None
        if self.minutes:
            # Time for a point and its server's stop: at most half of the job, so that a short one measures at all.
            reserve_s = min(float(self.sweep.settings["point_seconds"]) * 1.5 + 30, self.minutes * 30)
            stop_at = began + self.minutes * 60 - reserve_s
        policy = policy_of(self.sweep, stop, stop_at)
        with (
            writing_to(store),
            Claims(store.folder / "claims") as claims,
            stopping_on_signals(stop, loud=False),
            _stopping_on(self.stop_file, stop),
            _stopping_on_warning(stop),
            _slot(self.sweep, claims, policy),
        ):
            if self.stop_file.exists():
                stop()  # the signal came while this job waited, and nothing has checked it since
            watcher = Watcher() if self.silent else Printed(sys.stderr)
            good = run_group(self.sweep, store, claims, group, policy, watcher)
            if good is False and policy.fail_fast:
                self.stop_file.touch()


def launcher_of(sweep: Sweep) -> Any:
    """Returns the requested Hydra launcher; None for the basic one, whose jobs run here anyway."""
    if sweep.running is None or sweep.running.config is None:
        return None
    config = sweep.running.config
    target = str(config.hydra.launcher._target_)
    if target.endswith("BasicLauncher"):
        return None
    from hydra.core.plugins import Plugins
    from omegaconf import open_dict

    changed = copy.deepcopy(config)
    with open_dict(changed.hydra.launcher):
        if target.endswith(SLURM):
            if sweep.settings["max_jobs"]:
                changed.hydra.launcher["array_parallelism"] = sweep.settings["max_jobs"]
            gpus = max(group.gpus_of_node for group in sweep.groups)
            nodes = max(group.nodes for group in sweep.groups)
            if nodes > 1 and (changed.hydra.launcher.get("nodes") or 1) < nodes:
                changed.hydra.launcher["nodes"] = nodes
            if gpus and changed.hydra.launcher.get("gpus_per_node") is None and not changed.hydra.launcher.get("gres"):
                changed.hydra.launcher["gpus_per_node"] = gpus
        elif "joblib" in target and sweep.settings["max_jobs"]:
            changed.hydra.launcher["n_jobs"] = sweep.settings["max_jobs"]
    context, task = sweep.running.context, sweep.running.task_function
    launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=changed)
    # Hydra 1.4 refuses jobs whose config has another launcher than the composed one.
    launcher.setup(hydra_context=context, task_function=task, config=config)
    return launcher


def run_launched(sweep: Sweep, store: Store, launcher: Any) -> bool:
    """Runs rounds of jobs until no point is open or two rounds brought nothing. Returns whether it was interrupted."""
    assert sweep.running is not None
    minutes = sweep.running.config.hydra.launcher.get("timeout_min")
    silent = "joblib" in type(launcher).__name__.lower()  # submitit writes the output of its jobs to files
    folders = (folder if "://" in folder else str(Path(folder).resolve()) for folder in sweep.source.config_dirs)
    source = replace(sweep.source, config_dirs=tuple(folders))
    carried = replace(sweep, running=None, folder=sweep.folder.resolve(), source=source)
    stop, stalled = Stop(), 0
    with Claims(store.folder / "claims") as claims, stopping_on_signals(stop, "the sweep"), FolderScreen(sweep, store):
        while stalled < _STALLED_ROUNDS and not stop.asked:
            groups = [group for group in sweep.groups if open_points(sweep, store, group)]
            if not groups:
                break
            before = sum(len(open_points(sweep, store, group)) for group in groups)
            failed = sum(_failed(store, group) for group in sweep.groups)
            stop_file = carried.folder / "jobs" / f"{uuid.uuid4().hex}.stop"
            job = GroupJob(carried, tuple(group.server_id for group in groups), stop_file, minutes, silent)
            Round(sweep, launcher, job, len(groups), stop_file).run(stop)
            _wait_for(sweep, store, claims, stop)
            after = sum(len(open_points(sweep, store, group)) for group in sweep.groups)
            stalled = stalled + 1 if after >= before else 0
            if sweep.settings["fail_fast"] and sum(_failed(store, group) for group in sweep.groups) > failed:
                break
    return stop.asked


def _wait_for(sweep: Sweep, store: Store, claims: Claims, stop: Stop) -> None:
    """Waits until no live runner works on a server of this sweep: a lost one may still measure."""
    while not stop.asked:
        groups = [group for group in sweep.groups if open_points(sweep, store, group)]
        if all(claims.is_free(f"servers/{group.server_id}") for group in groups):
            return
        time.sleep(LOOK_S)


@contextlib.contextmanager
def _slot(sweep: Sweep, claims: Claims, policy: Policy) -> Iterator[None]:
    """Holds one of ``sweep.max_jobs`` slots; no limit without it. A launcher's own limit may be higher."""
    claim: Claim | None = None
    while sweep.settings["max_jobs"] and claim is None and not policy.over:
        taken = (claims.take(f"slots/{number}") for number in range(sweep.settings["max_jobs"]))
        claim = next(filter(None, taken), None)
        if claim is None:
            time.sleep(LOOK_S)
    try:
        yield
    finally:
        if claim is not None:
            with contextlib.suppress(OSError):
                claims.release(claim)


@contextlib.contextmanager
def _stopping_on(file: Path, stop: Stop) -> Iterator[None]:
    """Calls ``stop`` once ``file`` exists, during the block. It reaches jobs on other machines, which signals of the
    launching command do not."""

    def look() -> bool:
        if file.exists():
            stop()
            return True
        return False

    watching = Repeating(look, LOOK_S, "sweep-stop")
    look()
    watching.start()
    try:
        yield
    finally:
        watching.end()


@contextlib.contextmanager
def _stopping_on_warning(stop: Stop) -> Iterator[None]:
    """Stops at Slurm's signal before a job's end, so that open points are released and submitted again. The server gets
    that signal too and may die from it, which is not its fault."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGUSR2, lambda number, frame: stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR2, previous)


def _failed(store: Store, group: ServerGroup) -> int:
    return sum(store.standing(point.point_id).state == FAILED for point in group.points)
