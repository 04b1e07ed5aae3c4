"""Renders examinations as a screen and as a record."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.run.doctor.examination import Examination, State
from sglang_hydra.text.screen import Line, columns, printable, text
from sglang_hydra.text.words import plural

_STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "error": "bold red", "unknown": "cyan"}


def doctor_screen(examinations: Sequence[Examination]) -> list[Line]:
    """Renders one line per examination, a summary, and, except for ``ok``, details and what to type."""
    rows = [
        [text(item.state, _STYLES[item.state]), text(item.id, "bold"), text(item.subject), text(printable(item.found))]
        for item in examinations
    ]
    lines: list[Line] = [[text("Doctor", "bold")]]
    for item, line in zip(examinations, columns(rows), strict=True):
        lines.append(line)
        if item.state != "ok":
            lines += [[text(f"      {printable(detail)}", "dim")] for detail in item.details]
            if item.fix:
                lines.append([text("      type: ", "dim"), text(printable(item.fix), "green")])
    return [*lines, [], _summary(examinations)]


def doctor_record(examinations: Sequence[Examination]) -> dict[str, object]:
    """Returns the record of ``doctor --json``. ``ok`` is True when no check ended in an error."""
    counts = _counts(examinations)
    found = [item.to_json() for item in examinations]
    return {"schema": "sglang_hydra.doctor/1", "ok": not counts["error"], "counts": counts, "examinations": found}


def _summary(examinations: Sequence[Examination]) -> Line:
    counts = _counts(examinations)
    wrong = f"{plural(counts['error'], 'error')}, {plural(counts['warning'], 'warning')}"
    if counts["error"]:
        verdict = text("a server would fail here", "bold red")
    elif counts["warning"]:
        verdict = text("a server may start here; read the warnings", "yellow")
    else:
        verdict = text("no problems found", "bold green")
    return [text(f"{len(examinations)} looked at; {wrong}, {counts['unknown']} unknown: "), verdict]


def _counts(examinations: Sequence[Examination]) -> dict[State, int]:
    return {state: sum(item.state == state for item in examinations) for state in _STYLES}
