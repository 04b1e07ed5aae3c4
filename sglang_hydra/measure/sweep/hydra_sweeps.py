"""Connects sweeps with Hydra: runs our sweeps by Hydra launchers, and plans the sweeps of other apps."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.grammar import quoted
from sglang_hydra.compose.overrides import KEPT, Request, is_hydras
from sglang_hydra.compose.schema import SCHEMA_NAME
from sglang_hydra.measure.sweep.axes import axis_of
from sglang_hydra.measure.sweep.grid import read_grid
from sglang_hydra.measure.sweep.planning import Outcome, plan_sweep, verdict_on
from sglang_hydra.measure.sweep.points import HydraRun, Sweep
from sglang_hydra.measure.sweep.table import outcome_lines
from sglang_hydra.run.hydra_app import composer_of_app
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.screen import printable, write

_JOB = "bench"
_FOREIGN = ("params", "zip", "where", "dry_run", "budget_gpu_hours")
"""The settings of the ``sweep`` node that the sweeper's own node can set."""


class HydraSettings(NamedTuple):
    """The sweep settings in Hydra's node: values of the ``sweep`` node, further words, and whether any file or word
    names one of its keys."""

    given: JsonObject = {}
    requests: tuple[Request, ...] = ()
    is_named: bool = False


def hydra_settings(composer: Composer, requests: Sequence[Request], config_dirs: Sequence[str]) -> HydraSettings:
    """Reads ``hydra.sweep.dir``, ``hydra.sweeper.params`` and the rest of the sweeper's node for our sweep.

    Raises ConfigError for a key that Hydra lacks, and for a launcher that is not installed."""
    from omegaconf import OmegaConf

    requests = _without_foreign_searchpath(requests)
    common = [item for item in requests if not item.is_word or axis_of(item, composer.options) is None]
    typed = {item.text.lstrip("+").partition("=")[0] for item in requests}
    own = [item.text for item in requests if item.key is None and is_hydras(item.text)]
    of_files = composer.hydra_keys(common)
    if not own and not of_files:
        return HydraSettings()
    config, _ = _composed(composer, common, config_dirs, composer.config_name, own)
    node = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    node = dict(node) if isinstance(node, dict) else {}
    given = {name: node[name] for name in _FOREIGN if name != "params" and node.get(name)}
    named = {word.lstrip("+").partition("=")[0] for word in own}.union(of_files)
    if "hydra.sweep.dir" in named and "sweep.folder" not in typed:
        given["folder"] = str(config.hydra.sweep.dir)
    params = (node.get("params") or {}).items()
    words = [f"{key}={value}" for key, value in params if str(key).lstrip("+") not in typed]
    return HydraSettings(given, tuple(Request(word, "hydra.sweeper.params", KEPT) for word in words), True)


def _without_foreign_searchpath(requests: Sequence[Request]) -> list[Request]:
    """Removes search paths that nobody typed, as ``Composer`` does: Hydra imports every pkg:// that it searches."""
    return [item for item in requests if item.layer in ("cli", "experiment") or not _is_searchpath(item.text)]


def _is_searchpath(word: str) -> bool:
    return word.lstrip("+~").startswith("hydra.searchpath")


def with_launcher(sweep: Sweep, composer: Composer) -> Sweep:
    """Adds the configuration of the named Hydra launcher (``hydra/launcher=joblib``) to the sweep.

    Raises ConfigError if Hydra refuses one of its own keys."""
    source = sweep.source
    own = [word for word in sweep.hydra_words if not _is_searchpath(word)]
    own.append(f"hydra.sweep.dir={quoted(str(sweep.folder / 'jobs'))}")
    requests = _without_foreign_searchpath(source.requests)
    config, context = _composed(composer, requests, source.config_dirs, source.config_name, own)
    return replace(sweep, running=HydraRun(config, context, _nothing))


def _composed(
    composer: Composer, requests: Sequence[Request], config_dirs: Sequence[str], config_name: str, own: Sequence[str]
) -> tuple[Any, Any]:
    """Returns Hydra's config for a multirun, and the context of its launchers."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    from sglang_hydra.compose.hydra_jobs import context_of, hydra_over
    from sglang_hydra.run.launch.hydra_run import setup_error, with_our_sweeper

    words = with_our_sweeper([*composer.canonical(requests), *own])
    try:
        hydra = hydra_over(_JOB, config_dirs)
        config = hydra.compose_config(config_name, words, run_mode=RunMode.MULTIRUN)
        HydraConfig.instance().set_config(copy.deepcopy(config))  # for ${hydra:...}; what it holds is read-only
        check_plugins(config)
        return config, context_of(hydra, config)
    except (HydraException, OmegaConfBaseException) as failure:
        raise setup_error(failure) from failure
    finally:
        GlobalHydra.instance().clear()


def check_plugins(config: Any) -> None:
    """Raises ConfigError for a launcher or a sweeper that is not an installed Hydra plugin. Hydra would end with a
    traceback. Imports nothing from it."""
    from hydra.core.plugins import Plugins
    from hydra.plugins.launcher import Launcher
    from hydra.plugins.sweeper import Sweeper
    from omegaconf import OmegaConf

    findings = []
    for part, kind in (("launcher", Launcher), ("sweeper", Sweeper)):
        key = f"hydra.{part}._target_"
        target = OmegaConf.select(config, key)
        known = sorted(f"{found.__module__}.{found.__qualname__}" for found in Plugins.instance().discover(kind))
        if target not in known:
            message = f"{key}={target} is not one of the {part}s that are installed: {', '.join(known)}"
            findings.append(Finding("error", "SWP021", message, (key,), f"hydra/{part}=NAME chooses an installed one"))
    if findings:
        raise ConfigError(*findings)


def sweep_app(running: HydraRun, arguments: Sequence[str], settings: Mapping[str, object]) -> object:
    """Plans the multirun of another app and runs its task for every launchable point, by its launcher.

    Never merges points, because the task may do more than start a server. Exits with the exit code of a refusal before
    anything starts; returns the launcher's result."""
    try:
        outcome = _planned(running, arguments, settings)
    except SglangHydraError as failure:
        write(finding_lines([_for_app(finding) for finding in failure.findings]), sys.stderr)
        sys.exit(failure.exit_code)
    write(outcome_lines(outcome, ours=False))
    refusal = verdict_on(outcome)
    if refusal:
        write(finding_lines([refusal]), sys.stderr)
        sys.exit(ConfigError.exit_code)
    if outcome.grid.settings["dry_run"]:
        return []
    common = [request.text for request in outcome.grid.common]
    return _launched(running, [[*common, *point.words] for group in outcome.groups for point in group.points])


def _planned(running: HydraRun, arguments: Sequence[str], settings: JsonObject) -> Outcome:
    from omegaconf import OmegaConf

    requests = [Request(text, f"override {number}") for number, text in enumerate(arguments, 1)]
    composer = composer_of_app(running.config.hydra)
    common = [item for item in requests if axis_of(item, composer.options) is None]
    beside = [composer_of_app(running.config.hydra, mount) for mount in composer.mounts(common)[1:]]
    given = {
        name: OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        for name, value in settings.items()
        if name in _FOREIGN and value
    }
    grid = read_grid(composer, requests, given, measured=False)
    return plan_sweep(composer, grid, random.randint(0, 1 << 30), merges=False, beside=beside)


def _for_app(finding: Finding) -> Finding:
    if finding.about != "no_schema":
        return finding
    message = "hydra/sweeper=sglang sweeps apps whose config holds SGLang's arguments, and this one's does not"
    hint = f"hydra/sweeper=basic sweeps any app; an app that is to have them puts {SCHEMA_NAME} into its defaults list"
    return Finding("error", "SWP011", message, ("hydra.sweeper",), hint)


def _launched(running: HydraRun, jobs: Sequence[Sequence[str]]) -> Any:
    """Launches the jobs. Prints the error of every failed one, then raises the first, as Hydra does."""
    from hydra.core.plugins import Plugins
    from hydra.core.utils import JobStatus

    from sglang_hydra.compose.hydra_jobs import error_of

    context, task = running.context, running.task_function
    launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=running.config)
    returns = launcher.launch([list(job) for job in jobs], initial_job_idx=0)
    failed = [result for result in returns if result.status != JobStatus.COMPLETED]
    for result in failed:
        words, error = " ".join(map(str, result.overrides or ())), error_of(result)
        print(printable(f"{words}: {type(error).__name__}: {error}"), file=sys.stderr)
    if failed:
        _ = failed[0].return_value  # raises what the task raised
    return returns


def _nothing(config: object) -> None:
    """Does nothing, in place of a job's task before it is set."""
