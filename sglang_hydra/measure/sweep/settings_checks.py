"""Settings of the ``sweep`` node that no run and no search can follow, refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.settings.bench import LADDER
from sglang_hydra.compose.settings.sweep import SEARCHES, TPE
from sglang_hydra.measure.sweep.grid import Grid
from sglang_hydra.measure.sweep.points import Sweep, has_slo
from sglang_hydra.measure.sweep.search import HIGHEST
from sglang_hydra.measure.sweep.setters import with_setters
from sglang_hydra.measure.sweep.store import FAILED
from sglang_hydra.measure.sweep.tpe import Dimension
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

_RERUN = (FAILED, "invalid")
_KEYS = ("bench.concurrency", "bench.request_rate")


def check_settings(sweep: Sweep) -> None:
    """Raises ConfigError for settings of the ``sweep`` node that no run can follow."""
    settings = sweep.settings
    findings = [_no_search(*problem) for problem in _search_problems(sweep)]
    invalid = [state for state in settings["rerun"] if state not in _RERUN]
    if invalid:
        message = f"sweep.rerun names {invalid[0]!r}; it may name {', '.join(_RERUN)}"
        findings.append(Finding("error", "RNR002", message, ("sweep.rerun",), "sweep.rerun=[failed]"))
    for name, least in (("retries", 0), ("max_jobs", 1)):
        value = settings[name]
        if value is not None and value < least:
            message = f"sweep.{name}={value} must be at least {least}"
            findings.append(Finding("error", "RNR002", message, (f"sweep.{name}",), f"sweep.{name}={max(least, 1)}"))
    if findings:
        raise ConfigError(*findings)


def _no_search(message: str, hint: str, *fields: str) -> Finding:
    return Finding("error", "RNR005", message, fields, hint)


def _search_problems(sweep: Sweep) -> Iterator[tuple[str, ...]]:
    """What of the settings no search along one key can follow: the message, what to type, the keys."""
    settings = sweep.settings
    kind, key = settings["search"], settings["search_key"]
    if kind in (None, TPE):
        return
    if kind not in SEARCHES:
        message = f"sweep.search={kind} is none of {', '.join(SEARCHES)}"
        yield message, "sweep.search=bisect or sweep.search=tpe", "sweep.search"
        return
    if key not in _KEYS:
        message = f"sweep.search_key={key} is none of {', '.join(_KEYS)}"
        yield message, f"sweep.search_key={_KEYS[0]}", "sweep.search_key"
    low, high = settings["search_min"] or 1, settings["search_max"] or HIGHEST
    bounds = "sweep.search_min=1 sweep.search_max=64"
    if not 0 < low <= high or settings["search_steps"] < 1 or (key == _KEYS[0] and low != int(low)):
        message = f"between {low:g} and {high:g} there is nothing to try in {settings['search_steps']} steps"
        yield message, bounds, "sweep.search_min", "sweep.search_max", "sweep.search_steps"
    if any(word.lstrip("+").partition("=")[0] == key for point in sweep.points() for word in point.words):
        yield f"{key} varies, and sweep.search=bisect chooses its values", bounds, key, "sweep.search"
    if not all(has_slo(point.workload) for point in sweep.points()):
        message = "sweep.search=bisect looks for the highest load that meets the SLO, and there is none"
        yield message, "bench.slo.ttft_ms=500, or bench.slo.itl_ms or bench.slo.e2e_ms", "bench.slo"
    if any(point.workload["concurrency"] == LADDER for point in sweep.points()):
        message = "bench.concurrency=ladder is a search of its own beside sweep.search=bisect"
        yield message, "one of the two", "sweep.search", "bench.concurrency"


def check_search(composer: Composer, grid: Grid) -> None:
    """Raises ConfigError for a ``sweep.search=tpe`` that would mean nothing."""
    findings = [_no_search(*problem) for problem in _tpe_problems(composer, grid)]
    if findings:
        raise ConfigError(*with_setters(findings, grid.set_by))


def _tpe_problems(composer: Composer, grid: Grid) -> Iterator[tuple[str, ...]]:
    """The same of a search through all that varies."""
    settings = grid.settings
    if settings["trials"] < 1:
        yield f"sweep.trials={settings['trials']} must be at least 1", "sweep.trials=32", "sweep.trials"
    if not 0 <= settings["seed"] < 2**32:
        message = f"sweep.seed={settings['seed']} must be between 0 and {2**32 - 1}"
        yield message, "sweep.seed=1", "sweep.seed"
    if not grid.axes:
        message = "sweep.search=tpe looks for the best point, and nothing varies"
        yield message, "tp_size=1,2,4, or a key=interval(LOW,HIGH)", "sweep.search"
    for key in grid.keys:
        if key == "bench.slo" or key.startswith("bench.slo."):
            message = f"{key} varies, and goodput under one SLO is no better or worse than under another"
            yield message, f"{key}=500", key
    bench = composer.compose(grid.common).nodes.plain["bench"]
    varied = [axis for axis in grid.axes if "bench.concurrency" in axis.keys and axis.span is None]
    words = {request.text for axis in varied for requests in axis.values() for request in requests}
    if bench["concurrency"] == LADDER or f"bench.concurrency={LADDER}" in words:
        message = "bench.concurrency=ladder is a search of its own beside sweep.search=tpe"
        yield message, "bench.concurrency=interval(1,256)", "bench.concurrency", "sweep.search"
    # A launcher's jobs are made before the first of them runs; here each point depends on those before it.
    launcher = next((word for word in grid.hydra_words if word.lstrip("+").startswith("hydra/launcher=")), "=basic")
    if not launcher.endswith("=basic"):
        message = f"{launcher}: sweep.search=tpe measures one point after the other, in this process"
        yield f"{message}; other launchers cannot", "hydra/launcher=basic", "hydra/launcher", "sweep.search"


def check_values(composer: Composer, grid: Grid, dimensions: Sequence[Dimension]) -> None:
    """Raises ConfigError for a value that no point could have, before any is measured."""
    for dimension in dimensions:
        for requests in dimension.ends():
            composer.check([*grid.common, *requests])
