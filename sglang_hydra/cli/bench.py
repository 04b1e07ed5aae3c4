"""``bench``: plans a sweep, shows it and runs it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.facts.trust import begin_to_start
from sglang_hydra.measure.sweep.grid import Grid, as_words, read_grid
from sglang_hydra.measure.sweep.hydra_sweeps import hydra_settings, with_launcher
from sglang_hydra.measure.sweep.planning import Outcome, plan_sweep, sweep_of, verdict_on
from sglang_hydra.measure.sweep.points import Source, Sweep
from sglang_hydra.measure.sweep.setters import naming_setters
from sglang_hydra.measure.sweep.settings_checks import check_settings
from sglang_hydra.measure.sweep.store import OPEN, Store
from sglang_hydra.measure.sweep.table import outcome_lines, outcome_record
from sglang_hydra.rules.resolution import drawn_seed
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.progress import progress_line
from sglang_hydra.text.screen import print_json, text, write


def run(invocation: Invocation) -> int:
    """Plans a sweep, shows it, and runs the points that can be launched; only shows it with ``sweep.dry_run=true``.

    Returns 2 if no point can be launched, or if it would cost more than allowed."""
    composer = composer_of(invocation)
    requests = as_words(composer, invocation.requests)
    if not invocation.has("multirun"):
        composer.check(requests)  # reports a list of values without -m
    of_hydra = hydra_settings(composer, requests, invocation.config_dirs)
    grid = read_grid(composer, [*of_hydra.requests, *requests], of_hydra.given)
    write(finding_lines(grid.remarks), sys.stderr)
    seed = drawn_seed()
    outcome, sweep = _planned(composer, grid, invocation, seed)
    refusal = verdict_on(outcome)
    if not refusal and not grid.settings["dry_run"] and _names_programs(sweep):
        outcome, sweep = _planned(composer, grid, invocation, seed)
        refusal = verdict_on(outcome)
    if invocation.has("json") and (refusal or grid.settings["dry_run"]):
        print_json(outcome_record(outcome, [refusal] if refusal else []))
    else:
        write(outcome_lines(outcome, done=_taken_before(sweep)), sys.stderr if invocation.has("json") else None)
        write(finding_lines([refusal]) if refusal else [], sys.stderr)
    if refusal:
        return 2
    if grid.settings["dry_run"]:
        return 0
    from sglang_hydra.measure.sweep.settings_checks import check_packages

    check_packages("bench", "httpx")
    from sglang_hydra.measure.sweep.runner import run as take_points

    if of_hydra.is_named:
        sweep = with_launcher(sweep, composer)
    with naming_setters(grid.set_by):
        code = take_points(sweep)
    from sglang_hydra.measure.sweep.progress import status

    status(str(sweep.folder), as_json=invocation.has("json"))
    return code


def _planned(composer: Composer, grid: Grid, invocation: Invocation, seed: int) -> tuple[Outcome, Sweep]:
    with naming_setters(grid.set_by):
        with _progress() as show_progress:
            outcome = plan_sweep(composer, grid, seed, on_progress=show_progress)
        source = Source((), tuple(invocation.config_dirs), invocation.value("config_name") or PRIMARY_NAME, seed=seed)
        sweep = sweep_of(outcome, source)
        check_settings(sweep)
    return outcome, sweep


def _names_programs(sweep: Sweep) -> bool:
    """Shows the programs named in files that planning did not start, and allows starting them from now on. Returns
    whether there are any."""
    lines: dict[str, None] = {}
    composed: set[tuple[Request, ...]] = set()
    for group in sweep.groups:
        own = tuple(item for item in group.requests if item.text.partition("=")[0].startswith(("engine", "topology")))
        if own not in composed:
            composed.add(own)
            lines |= dict.fromkeys(begin_to_start(sweep.plan(group).programs))
    write([[text(line, "yellow")] for line in lines], sys.stderr)
    return bool(lines)


def _taken_before(sweep: Sweep) -> int:
    """Returns how many points of a resumed sweep are not measured again, because they have a result or failed for good;
    0 for an unreadable folder, which the run reports later."""
    store = Store(sweep.folder)
    try:
        states = [store.standing(point.point_id).outcome for point in sweep.points()]
    except ConfigError:
        return 0
    return sum(state not in (OPEN, *sweep.settings["rerun"]) for state in states)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Outcome], None]]:
    with progress_line() as show:
        yield lambda outcome: show(f"{outcome.total:,} points planned, {outcome.kept:,} to run")
