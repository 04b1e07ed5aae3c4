"""What ``sweep.search=tpe`` cannot search, refused before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.settings.bench import LADDER
from sglang_hydra.measure.sweep.grid import Grid
from sglang_hydra.measure.sweep.setters import told_who
from sglang_hydra.measure.sweep.tpe import Dimension
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding


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
    bench = composer.compose(grid.common).nodes["bench"]
    varied = [axis for axis in grid.axes if "bench.concurrency" in axis.keys and axis.span is None]
    words = {request.text for axis in varied for requests in axis.values() for request in requests}
    if bench["concurrency"] == LADDER or f"bench.concurrency={LADDER}" in words:
        message = "bench.concurrency=ladder is a search of its own beside sweep.search=tpe"
        hint = "bench.concurrency=interval(1,256)"
        findings.append(Finding("error", "RNR005", message, ("bench.concurrency", "sweep.search"), hint))
    findings += _launcher_findings(grid)
    if findings:
        raise ConfigError(*told_who(findings, grid.set_by))


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
