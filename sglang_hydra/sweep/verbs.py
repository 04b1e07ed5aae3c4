"""``bench``, and ``plan -m`` and ``check -m``: a sweep planned and run, or only judged point by point."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sglang_hydra.actions import composer_of, print_json
from sglang_hydra.config import PRIMARY_NAME
from sglang_hydra.errors import ConfigError
from sglang_hydra.explain import finding_lines
from sglang_hydra.overrides import Request
from sglang_hydra.screen import Line, Span, columns, text, write
from sglang_hydra.sweep.grid import Grid, read_grid
from sglang_hydra.sweep.judging import Judged
from sglang_hydra.sweep.kept_words import as_words
from sglang_hydra.sweep.needs import TPE
from sglang_hydra.sweep.planning import Outcome, judge_of, judged_points, plan_sweep, sweep_of, verdict_on
from sglang_hydra.sweep.points import Source, Sweep
from sglang_hydra.sweep.settings_checks import check_settings
from sglang_hydra.sweep.table import outcome_lines, outcome_record
from sglang_hydra.sweep.who import saying_who
from sglang_hydra.words import plural, short

if TYPE_CHECKING:
    from sglang_hydra.cli import Invocation
    from sglang_hydra.compose import Composer

_SHOWN_NAME = 60
_SILENT_S, _EVERY_S = 1.0, 0.2


def bench(invocation: Invocation) -> int:
    """Plans a sweep, shows it, and runs what can be launched; with ``sweep.dry_run=true`` it is only shown.

    2 where no point can be launched, or where it would cost more than it may.
    """
    composer = composer_of(invocation)
    requests = as_words(composer, invocation.requests)
    if not invocation.multirun:
        composer.check(requests)  # says of a list of values that -m was forgotten
    grid = read_grid(composer, requests)
    write(finding_lines(grid.remarks), sys.stderr)
    seed = random.randint(0, 1 << 30)
    searched = grid.settings["search"] == TPE
    with saying_who(grid.set_by):
        if searched:
            from sglang_hydra.sweep.tuning_plan import plan_search

            outcome = plan_search(composer, grid, seed)
        else:
            with _progress() as told:
                outcome = plan_sweep(composer, grid, seed, told=told)
        source = Source((), tuple(invocation.config_dirs), invocation.config_name or PRIMARY_NAME, seed=seed)
        sweep = sweep_of(outcome, source)
        check_settings(sweep)
    refusal = verdict_on(outcome)
    if invocation.json and (refusal or grid.settings["dry_run"]):
        print_json(outcome_record(outcome, [refusal] if refusal else []))
    else:
        write(outcome_lines(outcome, done=_taken_before(sweep)), sys.stderr if invocation.json else None)
        write(finding_lines([refusal]) if refusal else [], sys.stderr)
    if refusal:
        return 2
    if grid.settings["dry_run"]:
        return 0
    from sglang_hydra.sweep.needs import check_packages

    check_packages("bench", "httpx")
    if sweep.hydra_words:
        from sglang_hydra.sweep.in_hydra import with_launcher

        sweep = with_launcher(sweep, composer)
    with saying_who(grid.set_by):
        code = _searched(composer, grid, sweep, seed) if searched else _taken(sweep)
    from sglang_hydra.sweep.resuming import status

    status(str(sweep.folder), as_json=invocation.json)
    return code


def _taken_before(sweep: Sweep) -> int:
    """How many points of a sweep that goes on have their result, or failed for good, and are not taken again; 0 where
    that cannot be read, which the run then says."""
    from sglang_hydra.sweep.store import DONE, OPEN, Store

    store = Store(sweep.folder)
    if not (sweep.folder / "sweep.json").is_file():
        return 0
    try:
        states = [store.state(point.point_id) for point in sweep.points()]
    except ConfigError:
        return 0
    stand = [found.record["state"] if found.state == DONE and found.record else found.state for found in states]
    return sum(state != OPEN and state not in sweep.settings["rerun"] for state in stand)


def _taken(sweep: Sweep) -> int:
    from sglang_hydra.sweep.runner import run

    return run(sweep)


def _searched(composer: Composer, grid: Grid, sweep: Sweep, seed: int) -> int:
    from sglang_hydra.sweep.store import Store
    from sglang_hydra.sweep.tuning import Tuning
    from sglang_hydra.sweep.tuning_run import run_search

    store = Store(sweep.folder)
    return run_search(sweep, Tuning(composer, grid, seed, store), store)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Outcome], None]]:
    """On a terminal, how many points are planned so far, in a line that goes away."""
    stream = sys.stderr
    if not stream.isatty():
        yield lambda outcome: None
        return
    due = time.monotonic() + _SILENT_S

    def told(outcome: Outcome) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _EVERY_S
            stream.write(f"\r{outcome.total:,} points planned, {outcome.kept:,} to run")
            stream.flush()

    try:
        yield told
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def judge_all(invocation: Invocation) -> int:
    """The verdict on each point, and nothing merged or started. 2 if SGLang would refuse one; with ``--strict`` also
    for what only we know will fail."""
    composer = composer_of(invocation)
    grid = read_grid(composer, invocation.requests, measured=False)
    judge = judge_of(composer, grid, random.randint(0, 1 << 30))
    points = [(_name_of(own), judged) for own, judged in judged_points(grid, judge)]
    good = all(_is_good(judged, invocation.strict) for _, judged in points)
    if invocation.json:
        results = [_record(name, judged) for name, judged in points]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "results": results})
    else:
        write(_lines(points))
    return 0 if good else 2


def _is_good(judged: Judged, strict: bool) -> bool:
    if judged.server is None:
        return False
    return not judged.refused if strict else judged.server.plan.ok


def _name_of(own: Sequence[Request]) -> str:
    return " ".join(request.text for request in own) or "the plan"


def _record(name: str, judged: Judged) -> dict[str, Any]:
    """One result of the schema that ``check`` has."""
    plan = judged.server.plan if judged.server else None
    said = dict.fromkeys((*judged.refused, *(plan.findings if plan else ())))
    return {
        "name": name,
        "ok": plan is not None and plan.ok,
        "launchable": not judged.refused,
        "server_id": judged.server.server_id if judged.server else None,
        "findings": [finding.to_json() for finding in said],
    }


def _lines(points: Sequence[tuple[str, Judged]]) -> list[Line]:
    rows: list[list[Span]] = [[text(title, "bold") for title in ("point", "verdict", "server", "why")]]
    rows += [_row(name, judged) for name, judged in points]
    kept = sum(not judged.refused for _, judged in points)
    servers = len({judged.server.server_id for _, judged in points if judged.server and not judged.refused})
    said = f"{kept} of {plural(len(points), 'point')} can be launched, on {plural(servers, 'server start')}"
    return [*columns(rows), [], [text(said)]]


def _row(name: str, judged: Judged) -> list[Span]:
    if judged.server is None:
        verdict = text("cannot be composed", "bold red")
    elif not judged.server.plan.ok:
        verdict = text("SGLang refuses it", "bold red")
    elif judged.refused:
        verdict = text("would fail", "red")
    else:
        verdict = text("can be launched", "green")
    why = judged.refused[0] if judged.refused else None
    return [
        text(short(name, _SHOWN_NAME)),
        verdict,
        text(judged.server.server_id if judged.server and not judged.refused else ""),
        text(f"{why.id}: {short(why.message)}" if why else "", "dim"),
    ]
