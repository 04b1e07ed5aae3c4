"""Shows the verdict of an installed SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_hydra.show.comparison import difference_rows
from sglang_hydra.text.screen import Line, columns, text

if TYPE_CHECKING:
    from sglang_hydra.planning.upstream.verdict import Verdict


def authority_lines(verdict: Verdict) -> list[Line]:
    """The verdict in one line, and under it each argument that the release resolves otherwise; nothing where it was not
    asked, which is a finding. The line is whole when piped: it holds a path of any length, and people search for it."""
    if verdict.ok is None:
        return []
    style = "green" if verdict.ok else "bold red"
    rows = columns(difference_rows(verdict.differences), indent="    ")
    return [[text("  "), text(verdict.text, style)], *rows]
