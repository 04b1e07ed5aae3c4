"""Refuses settings of the ``sweep`` node that no run or search can follow, before anything starts. It needs nothing of
the extra ``bench``, because a plan of a sweep works without it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from sglang_hydra.compose.settings.bench import LADDER
from sglang_hydra.compose.settings.sweep import BISECT
from sglang_hydra.measure.sweep.points import Sweep, has_slo
from sglang_hydra.measure.sweep.search import HIGHEST
from sglang_hydra.measure.sweep.store import FAILED
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import install_command

_RERUN = (FAILED, "invalid")
_KEYS = ("bench.concurrency", "bench.request_rate")


def check_packages(verb: str, *names: str, extra: str = "bench") -> None:
    """Raises MachineError if one of the packages, which ``extra`` installs, is missing."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        message = f"{verb} needs {' and '.join(missing)}, which this environment does not have"
        raise MachineError(Finding("error", "RNR007", message, hint=install_command(extra)))


def check_settings(sweep: Sweep) -> None:
    """Raises ConfigError for settings of the ``sweep`` node that no run can follow."""
    settings = sweep.settings
    problems = _search_problems(sweep)
    findings = [Finding("error", "RNR005", message, tuple(fields), hint) for message, hint, *fields in problems]
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


def _search_problems(sweep: Sweep) -> Iterator[tuple[str, ...]]:
    """Yields the settings that no search along one key can follow: the message, what to type, the keys."""
    settings = sweep.settings
    kind, key = settings["search"], settings["search_key"]
    if kind is None:
        return
    if kind != BISECT:
        yield f"sweep.search={kind} is not {BISECT}", f"sweep.search={BISECT}", "sweep.search"
        return
    if key not in _KEYS:
        message = f"sweep.search_key={key} is not one of {', '.join(_KEYS)}"
        yield message, f"sweep.search_key={_KEYS[0]}", "sweep.search_key"
    low, high = settings["search_min"] or 1, settings["search_max"] or HIGHEST
    bounds = "sweep.search_min=1 sweep.search_max=64"
    if not 0 < low <= high or settings["search_steps"] < 1 or (key == _KEYS[0] and low != int(low)):
        message = f"between {low:g} and {high:g} there is nothing to try in {settings['search_steps']} steps"
        yield message, bounds, "sweep.search_min", "sweep.search_max", "sweep.search_steps"
    if any(word.lstrip("+").partition("=")[0] == key for point in sweep.points() for word in point.words):
        yield f"{key} varies, and sweep.search=bisect chooses its values", bounds, key, "sweep.search"
    if not all(has_slo(point.workload) for point in sweep.points()):
        message = "sweep.search=bisect looks for the highest load that meets the SLO, and no SLO is set"
        yield message, "bench.slo.ttft_ms=500, or bench.slo.itl_ms or bench.slo.e2e_ms", "bench.slo"
    if any(point.workload["concurrency"] == LADDER for point in sweep.points()):
        message = "bench.concurrency=ladder and sweep.search=bisect are two different searches"
        yield message, "leave out one of the two", "sweep.search", "bench.concurrency"
