"""Shows a planned sweep: its points, the reasons for omissions, the servers, the estimated time."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.measure.sweep.planning import Outcome
from sglang_hydra.measure.sweep.points import Refused, ServerGroup
from sglang_hydra.planning.finding_meanings import meaning_of
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, Span, columns, text
from sglang_hydra.text.words import plural, short

SCHEMA = "sglang_hydra.sweep_plan/1"
_SHOWN_SERVERS = 20
_SHOWN_WORDS = 100


def outcome_lines(outcome: Outcome, *, ours: bool = True, done: int = 0) -> list[Line]:
    """Returns the table. It marks assumed numbers. For a task that is not ``ours`` it omits time and folder, which are
    unknown. ``done`` points already have results."""
    keys = ", ".join(outcome.grid.keys)
    heading = f"Sweep of {plural(outcome.total, 'point')}" + (f" over {keys}" if keys else "; nothing varies")
    counted = columns(_counts(outcome, done)[: None if ours and outcome.kept else -2])
    lines: list[Line] = [[text(heading, "bold")], *counted, []]
    if outcome.refused:
        lines += [[text("Left out", "bold")], *_refused_lines(outcome.refused), []]
    if outcome.groups:
        lines += [[text("Servers, in the order in which they start", "bold")], *_server_lines(outcome.groups), []]
    return lines


def outcome_record(outcome: Outcome, findings: Sequence[Finding] = ()) -> dict[str, object]:
    """Returns the table for programs. ``servers`` is None if there are too many points to list."""
    estimate, settings = outcome.estimate, outcome.grid.settings
    return {
        "schema": SCHEMA,
        "total": outcome.total,
        "kept": outcome.kept,
        "merged": outcome.merged,
        "refused": [{**vars(item), "words": list(item.words)} for item in outcome.refused],
        "starts": outcome.starts,
        "estimate": {
            "hours": round(estimate.hours, 4),
            "gpu_hours": round(estimate.gpu_hours, 4),
            "start_seconds": settings["start_seconds"],
            "point_seconds": settings["point_seconds"],
        },
        "budget_gpu_hours": settings["budget_gpu_hours"],
        "folder": str(outcome.folder),
        "servers": list(map(_server_record, outcome.groups)) if outcome.listed else None,
        "findings": [finding.to_json() for finding in findings],
    }


def _counts(outcome: Outcome, done: int) -> list[list[Span]]:
    reasons = ", ".join(f"{item.count:,} {item.id}" for item in outcome.refused)
    refused = outcome.total - outcome.kept - outcome.merged
    estimate, settings = outcome.estimate, outcome.grid.settings
    assumed = f"{settings['start_seconds']:g} s a start and {settings['point_seconds']:g} s a point are assumed"
    if outcome.further:
        assumed += f", and {outcome.further} more of searches at most"
    hours = estimate.hours
    took = f"{hours * 60:.0f} minutes" if hours < 1 else f"{hours:.1f} hours"
    took += f", {estimate.gpu_hours:.2f} GPU hours"
    if settings["budget_gpu_hours"] is not None:
        took += f" of {settings['budget_gpu_hours']:g}"
    on = f"on {plural(outcome.starts, 'server start')}"
    if done:
        on = f"of {plural(outcome.kept, 'point')}: the others have been taken"
        assumed += ", for all of them"
    by_rules = f"points are an estimate by 0.5.2's rules: {outcome.not_asked}"
    return [
        [text("to run"), text(f"{outcome.kept - done:,}", "bold"), text(on)],
        [text("left out"), text(f"{refused:,}"), text(reasons)],
        [text("merged"), text(f"{outcome.merged:,}"), text("the same measurement as another point")],
        *([[text("by rules"), text(f"{outcome.estimates:,}"), text(by_rules, "yellow")]] if outcome.estimates else []),
        [text("estimate"), text(""), text(f"{took}; {assumed}")],
        [text("results in"), text(""), text(str(outcome.folder))],
    ]


def _refused_lines(refused: Sequence[Refused]) -> list[Line]:
    lines: list[Line] = []
    for item in refused:
        example = f", such as {short(' '.join(item.words), _SHOWN_WORDS)}" if item.words else ""
        lines.append([text("  "), text(item.id, "yellow"), text(f"  {plural(item.count, 'point')}{example}")])
        lines.append([text("      "), text(item.message)])
        if item.who:
            lines.append([text("      "), text(item.who, "dim")])
        if item.hint:
            lines.append([text("      "), text(f"hint: {item.hint}", "dim")])
        elif meaning_of(item.id) is None:
            lines.append([text("      "), text(f"explain {item.id} says more", "dim")])
    return lines


def _server_lines(groups: Sequence[ServerGroup]) -> list[Line]:
    rows = [[text(title, "bold") for title in ("server", "GPUs", "points", "")]]
    for group in groups[:_SHOWN_SERVERS]:
        own = " ".join(item.text for item in group.requests if not item.text.startswith(("bench.", "bench/")))
        gpus = str(group.gpus) if group.nodes == 1 else f"{group.gpus} on {group.nodes} nodes"
        cells = map(text, (group.server_id, gpus, str(len(group.points))))
        rows.append([*cells, text(short(own, _SHOWN_WORDS), "dim")])
    lines = columns(rows)
    if len(groups) > _SHOWN_SERVERS:
        lines.append([text(f"  and {len(groups) - _SHOWN_SERVERS} more", "dim")])
    return lines


def _server_record(group: ServerGroup) -> dict[str, object]:
    names = ("point_id", "workload_id", "repeat")
    points = [{**{name: getattr(point, name) for name in names}, "words": list(point.words)} for point in group.points]
    own = {"server_id": group.server_id, "gpus": group.gpus, "nodes": group.nodes}
    return {**own, "words": [request.text for request in group.requests], "points": points}
