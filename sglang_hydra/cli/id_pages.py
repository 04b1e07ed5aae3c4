"""Builds the page of any id: of a rule, a check, a failure class, a doctor check or another finding."""

from __future__ import annotations

import textwrap
from typing import Any

from sglang_hydra.planning.finding_meanings import meaning_of, plan_ids
from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.order import ORDER
from sglang_hydra.run.diagnose.classes import failure_classes, page_of
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.screen import Line, room, text

_ORIGINS = {"DIA": "a class of failure"}


def known_ids() -> frozenset[str]:
    """Returns every id that a plan, a diagnosis or another command can show."""
    return plan_ids() | frozenset(failure.id for failure in failure_classes())


def id_record(id: str) -> JsonDict | None:
    """Returns the record of ``explain ID --json``; None for an unknown id."""
    rule = _page_of(id)
    page = textwrap.dedent(rule.page).strip() if rule else meaning_of(id)
    if page is None:
        return None
    return {
        "schema": "sglang_hydra.explain/1",
        "id": id,
        "name": rule.name.replace("_", " ") if rule else None,
        "upstream": list(lines) if (lines := getattr(rule, "lines", None)) else None,
        "page": page,
    }


def id_screen(id: str) -> list[Line] | None:
    """Returns the page of a rule, or the meaning of another finding's id; None for an unknown id."""
    record = id_record(id)
    if record is None:
        return None
    lines: list[Line] = [[text(f"{id}  {record['name'] or ''}".rstrip(), "bold")]]
    if record["name"]:
        span = record["upstream"]
        where = f"SGLang 0.5.2, server_args.py:{span[0]}-{span[1]}" if span else _ORIGINS.get(id[:3], "a check of ours")
        lines.append([text(f"  {where}", "dim")])
    lines.append([])
    for part in record["page"].splitlines():
        lines += [[text(f"  {piece}")] for piece in (textwrap.wrap(part, room() - 4) if not record["name"] else [part])]
    return lines


def _page_of(id: str) -> Any:
    """Returns the rule, check or failure class with this id; None for any other id."""
    if id.startswith("DIA"):
        return page_of(id)
    if id.startswith("DOC"):
        from sglang_hydra.run.doctor.checks import CHECKS

        return next((check for check in CHECKS if check.id == id), None)
    return next((rule for rule in (*ORDER, *PLAN_CHECKS) if rule.id == id), None)
