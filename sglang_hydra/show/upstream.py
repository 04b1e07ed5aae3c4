"""Shows the verdicts of releases of SGLang, installed or by their wheels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.upstream.verdict import Verdict
from sglang_hydra.show.comparison import difference_rows
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import Line, columns, folded, room, shown, text

if TYPE_CHECKING:
    from sglang_hydra.show.verdicts import Verdict as Judged


def authority_lines(verdict: Verdict) -> list[Line]:
    """The verdict in one line, and under it each argument that the release resolves otherwise; nothing where it was not
    asked, which is a finding. The line is whole when piped: it holds a path of any length, and people search for it."""
    if verdict.ok is None:
        return []
    style = "green" if verdict.ok else "bold red"
    rows = columns(difference_rows(verdict.differences), indent="    ")
    return [[text("  "), text(verdict.text, style)], *rows]


def releases_lines(name: str, verdicts: Mapping[str, Judged]) -> list[Line]:
    """What several releases make of one thing: the verdict of each, and each value in which they differ."""
    lines: list[Line] = [[text(name, "bold")]]
    values: dict[str, Mapping[str, Any]] = {}
    for version, verdict in verdicts.items():
        made = verdict.made if isinstance(verdict.made, Plan) else None
        word = made.authority if made else None
        if made is not None and word is not None and word.ok:
            values[version] = made.values
        lines += folded([text(f"  {version}  "), *_word(verdict, word)], room())
    shared = set.intersection(*map(set, values.values())) - {"random_seed"} if len(values) > 1 else set()
    rows = [
        [text(name), *(text(shown(plain(each[name]), width=24)) for each in values.values())] for name in sorted(shared)
    ]
    differing = [row for row in rows if len(set(row[1:])) > 1]
    if differing:
        lines += columns([[text("", "dim"), *(text(version, "dim") for version in values)], *differing], indent="    ")
    others = len(set().union(*values.values()) - shared) - 1
    if shared and others:
        lines.append([text(f"    {others} arguments are in some of them only, at their defaults or as typed", "dim")])
    return [*lines, []]


def _word(verdict: Judged, word: Verdict | None) -> Line:
    """The verdict in one clause: the release's own, else ours."""
    ids = f" ({', '.join(verdict.error_ids)})" if verdict.error_ids else ""
    if word is None or word.ok is None:
        why = f"; it was not asked: {word.why}" if word else ""
        return [text("we would accept it" if verdict.ok else f"we would refuse it{ids}", "yellow"), text(why)]
    return [text("accepts it", "green")] if word.ok else [text(f"refuses it: {word.error}", "bold red")]
