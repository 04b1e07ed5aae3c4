"""Shows the differences of two plans, and of a running server or another release from a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sglang_hydra.planning.comparing.actual import Comparison
from sglang_hydra.planning.comparing.difference import Difference, is_absent
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.json_types import Json
from sglang_hydra.text.screen import Line, Span, columns, folded, shown, text
from sglang_hydra.text.words import number


def difference_rows(differences: Sequence[Difference]) -> list[list[Span]]:
    """Returns a row for each argument that differs from the plan: planned, actual, and the likely reason."""
    return [
        [
            text("~", "yellow"),
            text(item.key),
            text(f"{shown(item.before, width=24)} -> {shown(item.after, width=36)}"),
            text(item.why[1], "dim"),
        ]
        for item in differences
    ]


def comparison_lines(compared: Comparison) -> list[Line]:
    """Returns the comparison for people: the arguments as planned, each difference with its reason, the KV cache."""
    good = not compared.differences
    lines: list[Line] = [[text(f"{compared.summary}", "bold green" if good else "bold")]]
    lines += columns(difference_rows(compared.differences))
    if compared.kv is not None and compared.kv.finding is None:
        lines.append([text(f"  {compared.kv.text}", "dim" if compared.kv.planned is None else "")])
    return [*lines, [], *finding_lines(list(compared.others))]


_TITLES = {"fact": "Facts", "value": "Resolved values", "environment": "Environment", "memory": "Memory, per GPU"}


def difference_lines(found: Sequence[Difference], left: str, right: str) -> Iterator[Line]:
    """Yields the differences of two plans, a table for each kind; then the arguments of only one release."""
    for kind, title in _TITLES.items():
        rows: list[list[Span]] = []
        for item in (item for item in found if item.kind == kind and not item.is_of_one_release):
            reasons = " | ".join(dict.fromkeys(reason for reason in item.why if reason))
            show = _capability if item.key == "gpu.compute_capability" else shown_value
            ours, theirs = _what_differs(item.before, item.after)
            values = [text(show(ours), "red"), text("->"), text(show(theirs), "green")]
            rows.append([text(item.key), *values, text(reasons, "dim")])
        if rows:
            yield from ([text(title, "bold")], *columns(rows), [])
    apart = [item for item in found if item.is_of_one_release]
    of_left = [f"{item.key}={shown(item.before, width=24)}" for item in apart if is_absent(item.after)]
    of_right = [f"{item.key}={shown(item.after, width=24)}" for item in apart if is_absent(item.before)]
    for release, words in ((left, of_left), (right, of_right)):
        if words:
            yield [text(f"Only in {release}", "bold")]
            yield from folded([text("  "), text(", ".join(words), "dim")])
            yield []


def _capability(value: Json) -> str:
    """Formats the capability as presets do: 9.0."""
    return ".".join(map(str, value)) if value else shown_value(value)


def _what_differs(left: object, right: object) -> tuple[object, object]:
    """Removes the equal keys of two mappings; other values stay."""
    if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
        return left, right
    both = [key for key in left if key in right and left[key] != right[key]]
    apart = {key: _what_differs(left[key], right[key]) for key in both}
    ours = {
        key: apart[key][0] if key in apart else item for key, item in left.items() if key in apart or key not in right
    }
    theirs = {
        key: apart[key][1] if key in apart else item for key, item in right.items() if key in apart or key not in left
    }
    return ours, theirs


def shown_value(value: object) -> str:
    """Formats a value for a table of differences: memory sizes and counts without a pointless fraction."""
    return number(value) if isinstance(value, float) and (value.is_integer() or value > 2) else shown(value)
