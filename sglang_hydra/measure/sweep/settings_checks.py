"""Settings of the ``sweep`` node that no run and no search can follow, refused before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

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
    findings = _search_problems(sweep)
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


def _search_problems(sweep: Sweep) -> list[Finding]:
    """What of the settings no search can follow."""
    settings = sweep.settings
    kind, key = settings["search"], settings["search_key"]
    if kind in (None, TPE):
        return []
    if kind not in SEARCHES:
        message = f"sweep.search={kind} is none of {', '.join(SEARCHES)}"
        return [Finding("error", "RNR005", message, ("sweep.search",), "sweep.search=bisect or sweep.search=tpe")]
    found = []
    if key not in _KEYS:
        message = f"sweep.search_key={key} is none of {', '.join(_KEYS)}"
        found.append(Finding("error", "RNR005", message, ("sweep.search_key",), f"sweep.search_key={_KEYS[0]}"))
    low, high = settings["search_min"] or 1, settings["search_max"] or HIGHEST
    if not 0 < low <= high or settings["search_steps"] < 1 or (key == _KEYS[0] and low != int(low)):
        message = f"between {low:g} and {high:g} there is nothing to try in {settings['search_steps']} steps"
        fields = ("sweep.search_min", "sweep.search_max", "sweep.search_steps")
        found.append(Finding("error", "RNR005", message, fields, "sweep.search_min=1 sweep.search_max=64"))
    if any(word.lstrip("+").partition("=")[0] == key for point in sweep.points() for word in point.words):
        message = f"{key} varies, and sweep.search=bisect chooses its values"
        found.append(
            Finding("error", "RNR005", message, (key, "sweep.search"), "sweep.search_min=1 sweep.search_max=64")
        )
    without = next((point for point in sweep.points() if not has_slo(point.workload)), None)
    if without is not None:
        message = "sweep.search=bisect looks for the highest load that meets the SLO, and there is none"
        hint = "bench.slo.ttft_ms=500, or bench.slo.itl_ms or bench.slo.e2e_ms"
        found.append(Finding("error", "RNR005", message, ("bench.slo",), hint))
    if any(point.workload["concurrency"] == LADDER for point in sweep.points()):
        message = "bench.concurrency=ladder is a search of its own beside sweep.search=bisect"
        found.append(Finding("error", "RNR005", message, ("sweep.search", "bench.concurrency"), "one of the two"))
    return found


def check_search(composer: Composer, grid: Grid) -> None:
    """Raises ConfigError for a search that would mean nothing."""
    settings = grid.settings
    findings = []
    if settings["trials"] < 1:
        message = f"sweep.trials={settings['trials']} must be at least 1"
        findings.append(Finding("error", "RNR005", message, ("sweep.trials",), "sweep.trials=32"))
    if not 0 <= settings["seed"] < 2**32:
        message = f"sweep.seed={settings['seed']} must be between 0 and {2**32 - 1}"
        findings.append(Finding("error", "RNR005", message, ("sweep.seed",), "sweep.seed=1"))
    if not grid.axes:
        message = "sweep.search=tpe looks for the best point, and nothing varies"
        findings.append(
            Finding("error", "RNR005", message, ("sweep.search",), "tp_size=1,2,4, or a key=interval(LOW,HIGH)")
        )
    for key in grid.keys:
        if key == "bench.slo" or key.startswith("bench.slo."):
            message = f"{key} varies, and goodput under one SLO is no better or worse than under another"
            findings.append(Finding("error", "RNR005", message, (key,), f"{key}=500"))
    bench = composer.compose(grid.common).nodes.plain["bench"]
    varied = [axis for axis in grid.axes if "bench.concurrency" in axis.keys and axis.span is None]
    words = {request.text for axis in varied for requests in axis.values() for request in requests}
    if bench["concurrency"] == LADDER or f"bench.concurrency={LADDER}" in words:
        message = "bench.concurrency=ladder is a search of its own beside sweep.search=tpe"
        hint = "bench.concurrency=interval(1,256)"
        findings.append(Finding("error", "RNR005", message, ("bench.concurrency", "sweep.search"), hint))
    findings += _launcher_findings(grid)
    if findings:
        raise ConfigError(*with_setters(findings, grid.set_by))


def _launcher_findings(grid: Grid) -> list[Finding]:
    """A launcher's jobs are made before the first of them runs; here each point depends on those before it."""
    launcher = next((word for word in grid.hydra_words if word.lstrip("+").startswith("hydra/launcher=")), None)
    if launcher is None or launcher.endswith("=basic"):
        return []
    message = (
        f"{launcher}: sweep.search=tpe measures one point after the other, in this process; other launchers cannot"
    )
    return [Finding("error", "RNR005", message, ("hydra/launcher", "sweep.search"), "hydra/launcher=basic")]


def check_values(composer: Composer, grid: Grid, dimensions: Sequence[Dimension]) -> None:
    """Raises ConfigError for a value that no point could have, before any is measured."""
    for dimension in dimensions:
        for requests in dimension.ends():
            composer.check([*grid.common, *requests])
