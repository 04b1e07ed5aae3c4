"""``hydra/sweeper=sglang_tpe``: an app's multirun whose points Optuna proposes from what the task has returned."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.measure.sweep.axes import axis_of, axis_of_params
from sglang_hydra.measure.sweep.points import HydraRun
from sglang_hydra.measure.sweep.tpe import Dimension, Study, dimensions_of
from sglang_hydra.run.before_hydra import numbered
from sglang_hydra.run.hydra_app import composer_of_app
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import write

if TYPE_CHECKING:
    from optuna.trial import Trial

_CHOICE = "hydra/sweeper=sglang_tpe"
_DIRECTIONS = ("maximize", "minimize")
_FILE = "optimization_results.yaml"
"""As Hydra's own Optuna sweeper calls it."""


class _Settings(NamedTuple):
    """The node of the sweeper. ``n_jobs`` points are proposed, and handed to the launcher, at a time."""

    params: Mapping[str, Any]
    n_trials: int
    n_jobs: int
    direction: str
    seed: int | None


def search_app(running: HydraRun, arguments: Sequence[str], settings: Mapping[str, Any]) -> Any:
    """Runs an app's task ``n_trials`` times and writes the best point into the sweep's folder. Returns its value.

    A job that is refused by findings is infeasible; any other exception of a job is raised, as Hydra does. Leaves with
    the exit code of a refusal where nothing can be searched, Optuna is missing, or every point is refused.
    """
    try:
        return _searched(running, arguments, _read(settings))
    except SglangHydraError as failure:
        write(finding_lines(list(failure.findings)), sys.stderr)
        sys.exit(failure.exit_code)


def _searched(running: HydraRun, arguments: Sequence[str], settings: _Settings) -> float:
    from hydra.core.plugins import Plugins

    common, dimensions = _space(running, arguments, settings)
    study = Study(dimensions, settings.seed, _CHOICE)
    launcher = Plugins.instance().instantiate_launcher(
        hydra_context=running.context, task_function=running.task_function, config=running.config
    )
    sign = 1 if settings.direction == "maximize" else -1
    best: tuple[float, list[str]] | None = None
    refusal: SglangHydraError | None = None
    for first in range(0, settings.n_trials, settings.n_jobs):
        asked = [study.ask() for _ in range(min(settings.n_jobs, settings.n_trials - first))]
        words = [[request.text for request in requests] for _, requests in asked]
        jobs = launcher.launch([[*common, *own] for own in words], initial_job_idx=first)
        for (trial, _), own, job in zip(asked, words, jobs, strict=True):
            value = _told(study, trial, job, sign)
            if isinstance(value, SglangHydraError):
                refusal = refusal or value
                print(f"{' '.join(own)}: refused: {value.findings[0].message}", file=sys.stderr)
            elif value is not None and (best is None or sign * value > sign * best[0]):
                best = value, own
    if best is None:
        raise refusal or _error("no trial returned a number", "return a float from the task")
    _write(running, *best)
    return best[0]


def _told(study: Study, trial: Trial, job: Any, sign: int) -> float | SglangHydraError | None:
    """Tells the study what a job came to, and returns that; None for what is no number (NaN)."""
    from hydra.core.utils import JobStatus

    from sglang_hydra.compose.hydra_internals import error_of

    error = error_of(job) if job.status != JobStatus.COMPLETED else None
    if isinstance(error, SglangHydraError):
        study.tell_infeasible(trial)
        return error
    value = job.return_value  # raises what the task raised
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _error(f"the task returned {value!r}, which is no number", "return a float from the task")
    if not math.isfinite(value):
        study.tell_failed(trial)
        return None
    study.tell_value(trial, sign * float(value))
    return float(value)


def _space(running: HydraRun, arguments: Sequence[str], settings: _Settings) -> tuple[list[str], list[Dimension]]:
    """The overrides that all points share, and what varies. Raises ConfigError where nothing does."""
    options = composer_of_app(running.config.hydra).options
    requests = numbered(arguments)
    axes = {request.text: axis_of(request, options) for request in requests}
    typed = {request.text.lstrip("+").partition("=")[0] for request in requests}
    place = "hydra.sweeper.params"
    found = [axis for axis in axes.values() if axis is not None]
    found += [
        axis_of_params(str(key), value if isinstance(value, list) else str(value), place, options)
        for key, value in settings.params.items()
        if str(key).lstrip("+") not in typed
    ]
    if not found:
        raise _error("no override varies", "KEY=interval(LOW,HIGH), KEY=range(LOW,HIGH,STEP) or KEY=A,B,C")
    return [request.text for request in requests if axes[request.text] is None], dimensions_of(found)


def _read(settings: Mapping[str, Any]) -> _Settings:
    """Raises ConfigError for a setting that no search can have."""
    from omegaconf import OmegaConf

    given = {key: OmegaConf.to_container(it) if OmegaConf.is_config(it) else it for key, it in settings.items()}
    unknown = [key for key in given if key not in _Settings._fields]
    if unknown:
        raise _error(f"hydra.sweeper has no key {unknown[0]}", f"its keys: {', '.join(_Settings._fields)}")
    kept: dict[str, Any] = {**given, "params": given.get("params") or {}}
    read = _Settings(**kept)
    for name, number in (("n_trials", read.n_trials), ("n_jobs", read.n_jobs)):
        if type(number) is not int or number < 1:
            raise _error(f"hydra.sweeper.{name}={number} is no whole number above 0", f"hydra.sweeper.{name}=20")
    if read.direction not in _DIRECTIONS:
        hint = f"hydra.sweeper.direction={_DIRECTIONS[0]} or {_DIRECTIONS[1]}"
        raise _error(f"hydra.sweeper.direction={read.direction} is none of {', '.join(_DIRECTIONS)}", hint)
    if read.seed is not None and type(read.seed) is not int:
        raise _error(f"hydra.sweeper.seed={read.seed} is no whole number", "hydra.sweeper.seed=1")
    return read


def _write(running: HydraRun, value: float, words: Sequence[str]) -> None:
    from omegaconf import OmegaConf

    folder = Path(running.config.hydra.sweep.dir)
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save({"name": "sglang_tpe", "best_overrides": list(words), "best_value": value}, folder / _FILE)
    print(f"best: {' '.join(words)} with {value:g}; {folder / _FILE}")


def _error(message: str, hint: str) -> ConfigError:
    return ConfigError(Finding("error", "SWP022", f"{_CHOICE}: {message}", ("hydra.sweeper",), hint))
