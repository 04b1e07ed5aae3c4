"""``plan -m`` and ``check -m``: show the verdict on every combination of values, and start nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sglang_hydra.cli.corrected import corrected_sweep
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of, is_good
from sglang_hydra.measure.sweep.grid import read_grid
from sglang_hydra.measure.sweep.judging import Judged
from sglang_hydra.measure.sweep.planning import judge_of, judged_points
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.first_lines import verdict_span
from sglang_hydra.show.verdicts import Checked, verdict_record
from sglang_hydra.text.exit_codes import INVALID
from sglang_hydra.text.screen import Line, Span, columns, print_json, text, write
from sglang_hydra.text.words import plural, short

_SHOWN_NAME = 60


def run(invocation: Invocation) -> int:
    """Prints the verdict on each point, without merging points. ``check`` returns 2 if one has an error."""
    composer = composer_of(invocation)
    grid = read_grid(composer, invocation.requests, measured=False)
    write(finding_lines(grid.remarks), sys.stderr)
    judge = judge_of(composer, grid)
    found = list(judged_points(grid, judge))
    points = [(" ".join(request.text for request in own) or "the plan", judged) for own, judged in found]
    good = all(is_good(invocation, *_checked(judged)) for _, judged in points)
    if invocation.has("json"):
        results = [_record(name, judged) for name, judged in points]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "results": results})
    else:
        write(_lines(points))
        write(corrected_sweep(invocation, grid.axes, [(own, not judged.refused) for own, judged in found]))
    return 0 if good or invocation.verb == "plan" else INVALID


def _checked(judged: Judged) -> Checked:
    """Returns a point's plan, with its refusals before the plan's findings."""
    made = judged.server.plan if judged.server else None
    return Checked(made, list(dict.fromkeys((*judged.refused, *(made.findings if made else ())))))


def _record(name: str, judged: Judged) -> dict[str, object]:
    verdict = {"launchable": judged.verdict.launchable, "why": judged.verdict.why}
    return {**verdict_record(name, _checked(judged)), **verdict}


def _lines(points: Sequence[tuple[str, Judged]]) -> list[Line]:
    rows: list[list[Span]] = [[text(title, "bold") for title in ("point", "verdict", "server", "why")]]
    rows += [_row(name, judged) for name, judged in points]
    servers = len({judged.server.server_id for _, judged in points if judged.server and not judged.refused})
    open = [judged.verdict for _, judged in points if judged.verdict.launchable is None]
    can = sum(judged.verdict.launchable is True for _, judged in points)
    counts = f"{can} of {plural(len(points), 'point')} can be launched, on {plural(servers, 'server start')}"
    notes = [f"{plural(len(open), 'point')} unknown: {open[0].why}"] if open else []
    return [*columns(rows), [], [text(counts)], *([text(note, "yellow")] for note in notes)]


def _row(name: str, judged: Judged) -> list[Span]:
    if judged.server is None:
        verdict = text("cannot be composed", "bold red")
    elif not judged.server.plan.ok:
        verdict = text("SGLang refuses it", "bold red")
    elif judged.refused:
        verdict = text("would fail", "red")
    else:
        verdict = verdict_span(judged.verdict)
    why = judged.refused[0] if judged.refused else None
    return [
        text(short(name, _SHOWN_NAME)),
        verdict,
        text(judged.server.server_id if judged.server and not judged.refused else ""),
        text(f"{why.id}: {short(why.message)}" if why else "", "dim"),
    ]
