"""Writes a plan as HTML for a notebook: set arguments with their origins, findings, command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from html import escape

from sglang_hydra.planning.fields import PlanFields
from sglang_hydra.planning.verdict import Verdict
from sglang_hydra.text.words import without_secret_forms


def plan_html(plan: PlanFields, server_id: str, verdict: Verdict) -> str:
    """Returns a heading, a table of the set arguments, one of the findings, and the command. A secret is shown as its
    reference."""
    answer = verdict.sentence + (f" ({verdict.why})" if verdict.why else "")
    named = [
        (name, plan.values.get(name), f"{chain[-1].layer}: {chain[-1].place}") for name, chain in plan.origins.items()
    ]
    findings = [(item.level, item.id, item.message, item.hint or "") for item in plan.findings]
    return "".join(
        (
            f"<p><b>Plan {escape(server_id)}</b>: {escape(answer)}, on {escape(str(plan.gpu.name))}</p>",
            _table(("argument", "value", "set by"), named),
            _table(("level", "id", "finding", "hint"), findings),
            f"<pre>{escape(without_secret_forms(shlex.join(plan.command)))}</pre>"
            if verdict.launchable is not False
            else "",
        )
    )


def _table(titles: Sequence[str], rows: Sequence[Iterable[object]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(without_secret_forms(str(cell)))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
