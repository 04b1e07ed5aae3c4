"""``report multirun/<sweep>...``: prints a table, and writes report.html and points.csv into the first sweep's folder.
With ``--base`` it is a gate, and report.html shows both sweeps."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.output_files import print_content
from sglang_hydra.measure.report.charts import short
from sglang_hydra.measure.report.comparing import read_slo
from sglang_hydra.measure.report.contents import Report, Winner, latency_note, make_report, number_cell, shown
from sglang_hydra.measure.report.page import counts, page, rejected
from sglang_hydra.measure.report.reading import Row, flat, ids_of, read_sweeps
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.file_text import reason_of
from sglang_hydra.text.locations import shown_path
from sglang_hydra.text.screen import Line, columns, print_json, printable, text, write
from sglang_hydra.text.whole_file import write_whole
from sglang_hydra.text.words import program
from sglang_hydra.text.words import short as cut

SCHEMA = "sglang_hydra.report/1"
_WIDEST = 40
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", re.IGNORECASE)
_FORMULA = re.compile(r"""((?:^|;)[\s"']*)([=+\-@\uff1d\uff0b\uff0d\uff20])""")


def run(invocation: Invocation) -> int:
    """Reads the named folders, shows their results, and writes the report beside them."""
    folders = [Path(request.text).expanduser() for request in invocation.requests]
    if not folders:
        hint = f"{program()} report multirun/SWEEP; several are compared with the first"
        raise ConfigError.of("REP001", "report of which sweep?", hint=hint)
    limits = invocation.value("slo")
    slo = {} if limits is None else read_slo(limits)
    if slo is None:
        hint = f"{program()} report multirun/SWEEP --slo ttft=500ms,itl=30ms,e2e=4s"
        raise ConfigError.of("REP004", f"--slo={invocation.value('slo')} is no list of limits", hint=hint)
    if any((invocation.value("base"), invocation.value("max_regression"), invocation.value("format"))):
        return _gate(invocation, folders, slo)
    made = make_report(read_sweeps(folders), slo)
    if invocation.has("json"):
        print_json(to_json(made))
        return 0
    write(report_lines(made))
    for name, content in (("report.html", page(made)), ("points.csv", points_csv(made))):
        if (why := _write_beside(folders[0] / name, content)) is not None:
            message = f"{folders[0] / name} cannot be written: {why}; the sweep is untouched"
            raise MachineError.of("REP002", message, hint="the report is above; --json prints the whole report")
        write([[text(f"wrote {shown_path(str(folders[0] / name))}", "dim")]])
    return 0


def _write_beside(file: Path, content: str) -> str | None:
    """Writes a file beside the results. Returns why that is impossible, else None."""
    try:
        write_whole(file, content)
    except OSError as failure:
        return reason_of(failure)
    return None


def _gate(invocation: Invocation, folders: Sequence[Path], slo: Mapping[str, float]) -> int:
    """Judges a sweep by another one. Returns 2 if a point fell by more than the limit, or none could be compared. A
    page that cannot be written does not change the verdict."""
    from sglang_hydra.measure.report.gate import gate, markdown, moved, read_limit

    limit = read_limit(invocation.value("max_regression") or "3%")
    form = invocation.value("format") or ("json" if invocation.has("json") else "text")
    base = invocation.value("base")
    if base is None:
        message = "--format and --max-regression go with --base"
        hint = "points.csv and report.html are written beside the results of a sweep; --json prints them as JSON"
        raise ConfigError.of("REP003", message, hint=hint)
    if limit is None or len(folders) != 1 or form not in ("text", "markdown", "json"):
        message = "--base compares one sweep with one base, with a limit in percent and a form (text, markdown, json)"
        hint = f"{program()} report multirun/NEW --base multirun/OLD --max-regression 3% --format markdown"
        raise ConfigError.of("REP003", message, hint=hint)
    sweeps = read_sweeps([Path(base).expanduser(), *folders])
    made = gate(sweeps[0], sweeps[-1], limit)
    if form == "json":
        print_json(made.to_json())
        return 0 if made.ok else 2
    file = folders[0] / "report.html"
    why = _write_beside(file, page(make_report(sweeps, slo)))
    if form == "markdown":
        print_content(markdown(made))
    else:
        for item in made.judged:
            words = f"{short(item.before)} -> {short(item.after)} ({moved(item.loss)}, {item.state})"
            color = {"good": "green", "noise": "dim"}.get(item.state, "bold red")
            write([[text(f"{item.words}: {item.measure} {words}", color)]])
        write([[text(f"{lost.words}: {lost.state}: {lost.why}", "yellow")] for lost in made.lost])
        held = f"at most {made.limit:.1%} worse, or noise" if made.ok else f"{len(made.fallen)} fell"
        write([[text(f"{made.name} against {made.base}: {held if made.judged else 'nothing to compare'}", "bold")]])
        if made.power:
            write([[text(made.power, "dim")]])
        note = f"wrote {shown_path(str(file))}, with both sweeps" if why is None else f"{file} cannot be written: {why}"
        write([[text(note, "dim" if why is None else "yellow")]])
    return 0 if made.ok else 2


def report_lines(made: Report) -> Iterator[Line]:
    """Yields the report for a terminal: counts, points, the best points, and what does not count."""
    yield [text(", ".join(sweep.name for sweep in made.sweeps), "bold"), text(f": {counts(made)}")]
    for sweep in made.sweeps:
        for problem in sweep.problems:
            yield [text(problem.message, "bold red")]
    yield []
    if made.groups:
        head = ["sweep"] if len(made.sweeps) > 1 else []
        table = [[*head, *made.keys, *(metric.words for metric in made.columns)]]
        for group in made.groups:
            where = [group.first.sweep] if len(made.sweeps) > 1 else []
            numbers = [number_cell(metric, group.mean(metric)) for metric in made.columns]
            settings = [cut(cell, _WIDEST) for cell in made.cells(group)]
            table.append([*where, *settings, *numbers])
        yield from columns([[text(cell) for cell in row] for row in table])
        yield [text(latency_note(made.sweeps), "dim")]
        yield []
    for workload in made.largest:
        if len(made.workloads) > 1:
            yield [text(workload.words, "bold")]
        if workload.held:
            yield [text(workload.held, "bold")]
        for winner in workload.winners:
            yield from _winner_lines(made, winner)
    yield from ([text(answer, "bold")] for answer in made.search_answers)
    for item in made.changes:
        verdict = {None: "repeats are needed to tell", True: "noise", False: "beyond the noise"}[item.noise]
        moved = f"{short(item.before)} -> {short(item.after)} ({item.change:+.1%}, {verdict})"
        yield [text(f"{item.words}: {item.metric.words} {moved}")]
    for row in rejected(made):
        yield [text(f"{row['state']}: ", "yellow"), text(f"{row['words']}: {row['why']}")]


def _winner_lines(made: Report, winner: Winner) -> Iterator[Line]:
    best = winner.verdict.best
    number = short(best.mean(winner.metric) or 0.0)
    which = " ".join(f"{key}={cell}" for key, cell in zip(made.keys, made.cells(best), strict=True))
    yield [
        text(f"{winner.title}: "),
        text(f"{number} {winner.metric.unit}", "bold green" if winner.verdict.sure else ""),
        text(f"  {which}"),
    ]
    yield [text(f"  {winner.verdict.why}", "dim")]
    yield [text(f"  {winner.command}")]


def points_csv(made: Report) -> str:
    """Returns a line for each point of every sweep: ids, state, the settings that vary, all measures."""
    rows = [row for sweep in made.sweeps for row in sweep.rows]
    measures = sorted({name for row in rows for name in flat(row.measures)})
    lines: list[Sequence[object]] = []
    for row in rows:
        ids, cells = ids_of(row), flat(row.measures)
        settings = [shown(row.settings.get(key)) if row.settings else "" for key in made.keys]
        lines.append([*ids.values(), *settings, *("" if cells.get(name) is None else cells[name] for name in measures)])
    file = io.StringIO(newline="")
    head = ("sweep", "point_id", "server_id", "repeat", "state", "reasons", "words", *made.keys, *measures)
    csv.writer(file).writerows(map(_cell, line) for line in [head, *lines])
    return file.getvalue()


def _cell(value: object) -> object:
    """Returns a cell as text, with an apostrophe in front of what a spreadsheet would read as a formula.

    This also covers programs that split cells at semicolons; numbers stay numbers."""
    if not isinstance(value, str):
        return value
    content = printable(value)
    return content if _NUMBER.fullmatch(content) else _FORMULA.sub(r"\1'\2", content)


def to_json(made: Report) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "sweeps": [
            {
                "name": sweep.name,
                "folder": str(sweep.folder),
                "words": list(sweep.words),
                "refused": [dict(item) for item in sweep.refused],
                "problems": [finding.to_json() for finding in sweep.problems],
                "environment": dict(sweep.environment),
                "searches": [dict(item) for item in sweep.searches],
            }
            for sweep in made.sweeps
        ],
        "keys": list(made.keys),
        "points": [_point_record(row, made.keys) for sweep in made.sweeps for row in sweep.rows],
        "best": [
            {
                "title": winner.title,
                "measure": winner.metric.key,
                "value": winner.verdict.best.mean(winner.metric),
                "sure": winner.verdict.sure,
                "why": winner.verdict.why,
                "points": [row.point_id for row in winner.verdict.best.rows],
                "command": winner.command,
            }
            for winner in made.winners
        ],
        "fronts": [
            {
                "x": front.x.key,
                "y": front.y.key,
                "points": [[row.point_id for row in group.rows] for group in front.groups if id(group) in front.best],
            }
            for front in made.fronts
        ],
        "changes": [
            {
                "words": item.words,
                "measure": item.metric.key,
                "before": item.before,
                "after": item.after,
                "change": item.change,
                "interval": None if item.interval is None else list(item.interval),
                "noise": item.noise,
            }
            for item in made.changes
        ],
    }


def _point_record(row: Row, keys: Sequence[str]) -> dict[str, object]:
    return {
        "sweep": row.sweep,
        "point_id": row.point_id,
        "server_id": row.server_id,
        "repeat": row.repeat,
        "state": row.state,
        "reasons": list(row.reasons),
        "words": list(row.words),
        "settings": {key: row.settings.get(key) for key in keys},
        "measures": dict(row.measures),
    }
