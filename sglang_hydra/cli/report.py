"""``report multirun/<sweep>...``: a table here, report.html and points.csv in the first sweep's folder."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.measure.report.charts import short
from sglang_hydra.measure.report.contents import Report, latency_note, make_report, shown
from sglang_hydra.measure.report.page import counts, page, rejected
from sglang_hydra.measure.report.reading import Row, read_sweeps
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.findings import Finding
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
    """Reads the folders that were named, shows what they found, and writes it beside the results."""
    folders = [Path(request.text).expanduser() for request in invocation.requests]
    if not folders:
        hint = f"{program()} report multirun/SWEEP; several are compared with the first"
        raise ConfigError(Finding("error", "REP001", "report of which sweep?", hint=hint))
    made = make_report(read_sweeps(folders))
    if invocation.json:
        print_json(to_json(made))
        return 0
    write(report_lines(made))
    for name, content in (("report.html", page(made)), ("points.csv", points_csv(made))):
        file = folders[0] / name
        try:
            write_whole(file, content)
        except OSError as failure:
            why = failure.strerror or str(failure)
            message = f"{file} cannot be written: {why}; the sweep is untouched"
            hint = "the report is above; --json prints all of it"
            raise MachineError(Finding("error", "REP002", message, hint=hint)) from None
        write([[text(f"wrote {shown_path(str(file))}", "dim")]])
    return 0


def report_lines(made: Report) -> Iterator[Line]:
    """The report in a terminal: counts, points, the best of them, what does not count."""
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
            means = [group.mean(metric) for metric in made.columns]
            settings = [cut(cell, _WIDEST) for cell in made.cells(group)]
            table.append([*where, *settings, *("" if mean is None else short(mean) for mean in means)])
        yield from columns([[text(cell) for cell in row] for row in table])
        yield [text(latency_note(made.sweeps), "dim")]
        yield []
    for winner in made.winners:
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
    for item in made.changes:
        verdict = {None: "repeats are needed to tell", True: "noise", False: "beyond the noise"}[item.noise]
        moved = f"{short(item.before)} -> {short(item.after)} ({item.change:+.1%}, {verdict})"
        yield [text(f"{item.words}: {item.metric.words} {moved}")]
    for row in rejected(made):
        yield [text(f"{row['state']}: ", "yellow"), text(f"{row['words']}: {row['why']}")]


def points_csv(made: Report) -> str:
    """Every point of every sweep, a line each: ids, state, the settings that vary, all measures."""
    rows = [row for sweep in made.sweeps for row in sweep.rows]
    measures = sorted({name for row in rows for name in _flat(row.measures)})
    file = io.StringIO(newline="")
    writer = csv.writer(file)

    def write_row(cells: Sequence[Any]) -> None:
        writer.writerow([_cell(cell) for cell in cells])

    write_row(["sweep", "point_id", "server_id", "repeat", "state", "reasons", "words", *made.keys, *measures])
    for row in rows:
        flat = _flat(row.measures)
        settings = [shown(row.settings.get(key)) if row.settings else "" for key in made.keys]
        ids = [
            row.sweep,
            row.point_id,
            row.server_id,
            row.repeat,
            row.state,
            "; ".join(row.reasons),
            " ".join(row.words),
        ]
        write_row([*ids, *settings, *("" if flat.get(name) is None else flat[name] for name in measures)])
    return file.getvalue()


def _cell(value: Any) -> Any:
    """A cell as text: one that a spreadsheet would take for a formula gets an apostrophe in front of it.

    A program that separates cells at semicolons must find none either; numbers stay numbers.
    """
    if not isinstance(value, str):
        return value
    content = printable(value)
    return content if _NUMBER.fullmatch(content) else _FORMULA.sub(r"\1'\2", content)


def to_json(made: Report) -> dict[str, Any]:
    """The report for programs."""
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


def _point_record(row: Row, keys: Sequence[str]) -> dict[str, Any]:
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


def _flat(measures: Any, path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in measures.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{path}{name}."))
        else:
            found[path + name] = value
    return found
