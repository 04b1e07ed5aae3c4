"""One call of a Hydra launcher: it is made, watched, cancelled, and what became of it is said."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from sglang_hydra.measure.sweep.job import Stop
from sglang_hydra.measure.sweep.points import Sweep
from sglang_hydra.measure.sweep.progress import Printed
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

SLURM = "SlurmLauncher"
"""The class of submitit's launcher for Slurm."""
LOOK_S = 0.5

_SLURM_LOOK_S = 3.0
_STOP_S = 60.0
_JOB_FOLDER = re.compile(r"(\d+)(?:_\d+)?")


class Round:
    """One call of a launcher. It is made in a thread, because a launcher may wait for ever for a job that nobody tells
    it of: Slurm without accounting forgets what was cancelled. Each of the ``count`` jobs runs ``task``, and ends once
    ``stop_file`` is there."""

    def __init__(self, sweep: Sweep, launcher: Any, task: Callable[[Any], None], count: int, stop_file: Path) -> None:
        self._sweep, self._launcher = sweep, launcher
        self._task, self._count, self._stop_file = task, count, stop_file
        self._slurm = type(launcher).__name__ == SLURM
        self._before = set(self._slurm_jobs())
        self._thread = threading.Thread(target=self._launch, name="sweep-launcher", daemon=True)
        self._failure: BaseException | None = None

    def run(self, stop: Stop) -> None:
        """Returns when no job of the round can still be running or waiting."""
        self._stop_file.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        ends_at = None
        while self._goes_on():
            if stop.asked and ends_at is None:
                ends_at = time.monotonic() + _STOP_S
                self._stop_file.touch()
                self._cancel()
            if ends_at is not None and time.monotonic() > ends_at:
                break
            self._thread.join(_SLURM_LOOK_S if self._slurm else LOOK_S)
        if not self._thread.is_alive():
            self._stop_file.unlink(missing_ok=True)
        if self._failure is not None and not stop.asked:
            self._say_why()

    def _goes_on(self) -> bool:
        queued = self._in_slurm
        return self._thread.is_alive() if queued is None else queued

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

    def _say_why(self) -> None:
        failure = self._failure
        if not self._slurm_jobs() - self._before and self._slurm and not isinstance(failure, MachineError):
            message = f"the jobs were not submitted: {' '.join(str(failure).split())}"
            hint = "hydra.launcher.partition=..., hydra.launcher.account=...: what sbatch needs here"
            raise MachineError(Finding("error", "RNR006", message, ("hydra.launcher",), hint)) from failure
        said = " ".join(str(failure).split())[:300]
        Printed(sys.stderr).server("job", f"lost, what it left open is taken again: {type(failure).__name__}: {said}")

    def _slurm_jobs(self) -> set[str]:
        """The numbers of the jobs that submitit has submitted from here: it makes a folder for each, once it is
        submitted, and one for each task of an array."""
        folder = self._sweep.running.config.hydra.launcher.get("submitit_folder") if self._sweep.running else None
        if not folder or not self._slurm:
            return set()
        with contextlib.suppress(OSError):
            found = [_JOB_FOLDER.fullmatch(path.name) for path in Path(str(folder)).parent.iterdir()]
            return {match[1] for match in found if match}
        return set()

    @property
    def _in_slurm(self) -> bool | None:
        """Whether a job of this round waits or runs in Slurm; None before there is one, and without Slurm."""
        jobs = self._slurm_jobs() - self._before
        return _in_queue(jobs) if jobs else None

    def _cancel(self) -> None:
        from sglang_hydra.run.launch.slurm.states import cancel

        for job in self._slurm_jobs() - self._before:
            cancel(job)


def _in_queue(jobs: Collection[str]) -> bool:
    """Whether Slurm has one of these jobs waiting or running; also where it does not answer now."""
    from sglang_hydra.run.launch.slurm.states import run_slurm

    asked = run_slurm("squeue", "--noheader", "--jobs", ",".join(sorted(jobs)), "--format", "%T")
    if asked is None or asked.stdout.strip():
        return True
    # Its controller forgets a job some minutes after its end.
    return asked.returncode != 0 and "Invalid job id" not in asked.stderr
