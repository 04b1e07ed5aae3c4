"""The record of ``upgrade --json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sglang_hydra.arguments.secrets import masked
from sglang_hydra.arguments.tables.table import release
from sglang_hydra.convert.upgrade.moves import Moves
from sglang_hydra.convert.upgrade.releases import direction
from sglang_hydra.convert.upgrade.upgraded import Upgrade
from sglang_hydra.show.plan import command_line
from sglang_hydra.text.json_types import plain

SCHEMA = "sglang_hydra.upgrade/1"


def record(made: Sequence[Upgrade], files: Sequence[tuple[str | None, Path | None, str | None]]) -> dict[str, Any]:
    """The record of all servers. ``files`` has for each the kind of the new file, its path and its content."""
    return {
        "schema": SCHEMA,
        "to": made[0].version,
        "ok": all(one.ok for one in made),
        "servers": [_server(one, *file) for one, file in zip(made, files, strict=True)],
    }


def _server(made: Upgrade, kind: str | None, path: Path | None, content: str | None) -> dict[str, Any]:
    plan, steps = made.plan, made.steps
    return {
        "name": made.subject.name,
        "source": made.subject.kind,
        "from": made.start.version,
        "from_why": made.start.why,
        "direction": direction(made.start.version, made.version),
        "ok": made.ok,
        "server_id": plan.server_id,
        "breaks": [
            {**asdict(item), "value": masked(item.key, item.value), "set_by": made.set_by.get(item.key)}
            for item in steps.broken
        ],
        "renamed": [
            {"key": item.key, "value": item.value, "before": list(item.before), "after": list(item.after)}
            for item in steps.respelled
        ],
        "defaults": [
            {
                "name": item.name,
                "before": plain(item.before),
                "after": plain(item.after),
                "since": item.since,
                "resolved": plain(plan.values[item.name]) if item.name in plan.values else None,
                "keep": item.keep,
            }
            for item in steps.moved
        ],
        "values": _values(made.comparison),
        "variables": [asdict(item) for item in made.variables],
        "release": made.changes.names,
        "needs": dict(release(made.version).needs),
        "command": list(plan.command),
        "command_line": command_line(plan) if plan.command else "",
        "environment": plan.shown_environment,
        "ours": made.our_command,
        "file": None if kind is None else {"kind": kind, "path": str(path) if path else None, "content": content},
        "findings": [finding.to_json() for finding in (*made.subject.findings, *steps.remarks, *plan.findings)],
    }


def _values(found: Moves | str) -> dict[str, Any]:
    """What both releases make of it; ``why`` says why that is not known."""
    if isinstance(found, str):
        return {"asked": False, "why": found, "moves": [], "steps": [], "before_id": None, "after_id": None}
    moves = [plain(item) for item in found.moves]
    ids = {"before_id": found.before_id, "after_id": found.after_id}
    return {"asked": True, "why": None, "moves": moves, "steps": list(found.steps), **ids}
