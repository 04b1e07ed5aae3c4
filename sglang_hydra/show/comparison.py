"""Shows how a running server, or another release, compares with a plan."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.planning.actual import Comparison, Difference
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.screen import Line, Span, columns, shown, text


def difference_rows(differences: Sequence[Difference]) -> list[list[Span]]:
    """A row for each argument that is not as planned: planned, actual, and the likely reason."""
    return [
        [
            text("~", "yellow"),
            text(item.field),
            text(f"{shown(item.planned, width=24)} -> {shown(item.actual, width=36)}"),
            text(item.reason, "dim"),
        ]
        for item in differences
    ]


def comparison_lines(compared: Comparison) -> list[Line]:
    """What a person reads: how many arguments are as planned, each that is not and why, and the KV cache."""
    good = not compared.differences
    lines: list[Line] = [[text(f"{compared.summary}", "bold green" if good else "bold")]]
    lines += columns(difference_rows(compared.differences))
    others = [finding for finding in compared.findings if finding.id != "ACT001"]
    if compared.kv is not None and compared.kv.finding is None:
        lines.append([text(f"  {compared.kv.text}", "dim" if compared.kv.planned is None else "")])
    return [*lines, [], *finding_lines(others)]
