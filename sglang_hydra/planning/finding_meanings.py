"""Explains each finding id that belongs to no rule and no check; ``explain CLI006`` shows it.

finding_meanings.json has the texts. Importing this module reads it, which a plan does only for ``ignore``."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.order import ORDER
from sglang_hydra.text.json_types import json_beside

_TABLE: Mapping[str, Mapping[str, str]] = json_beside(__file__)

MEANINGS = _TABLE["meanings"]
"""Each id with one or two sentences."""

RETIRED = _TABLE["retired"]
"""Retired ids, each with the id that replaced it or the reason. ``explain`` and ``ignore`` still know them, and no new
rule may use one."""


def plan_ids() -> frozenset[str]:
    """Returns every id that a finding or a ledger entry of a plan can have."""
    return frozenset((*(rule.id for rule in (*ORDER, *PLAN_CHECKS)), *MEANINGS, *RETIRED))


def meaning_of(id: str) -> str | None:
    """Returns one or two sentences about a finding's id, or None for an unused id."""
    return f"Retired: {RETIRED[id]}" if id in RETIRED else MEANINGS.get(id)


def title_of(id: str) -> str | None:
    """Returns the meaning of an id in one sentence, for a legend; None for an unused id."""
    page = next((rule.page for rule in (*ORDER, *PLAN_CHECKS) if rule.id == id), None)
    meaning = page.partition("What:")[2].partition("Why:")[0] if page else meaning_of(id)
    return " ".join(meaning.split()).partition(". ")[0].rstrip(".") if meaning else None
