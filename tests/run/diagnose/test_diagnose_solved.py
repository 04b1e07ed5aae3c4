"""Failures whose solution is known from their thread: how many first remedies solve them, and one of three."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sglang_hydra.cli.diagnose import typed_arguments
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.run.diagnose.classes import classes_by_kind
from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, Diagnosis, diagnose
from sglang_hydra.run.diagnose.remedy import with_remedies
from tests.plans import without_accelerator, without_engines
from tests.run.diagnose.recent import lines_of, rows

SOLVED = rows("solved")
SOLVE, IN_THREE = 149, 159


def found_in(row: dict[str, Any]) -> Diagnosis:
    release = [f"sglang=={row['release']}"] if "release" in row else []
    requests = [Request(word, "argument 2") for word in row.get("words", "").split()]
    found = diagnose([*release, *lines_of(row)], None, typed_arguments(requests))
    return with_remedies(found, Composer(), requests)


def test_most_first_remedies_solve_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)
    found = {row["id"]: (row, found_in(row)) for row in SOLVED}
    missed = [id for id, (row, one) in found.items() if not re.search(row["solves"], str(one.finding.shown[0]))]
    assert len(found) - len(missed) >= SOLVE, missed
    shown = [
        any(re.search(row["solves"], str(one)) for one in found.finding.shown[:3]) for row, found in found.values()
    ]
    assert sum(shown) >= IN_THREE
    wrong = [id for id, (row, one) in found.items() if one.kind not in (row["class"], *row.get("also", ()))]
    assert wrong == []


@pytest.mark.parametrize("row", SOLVED, ids=lambda row: row["id"])
def test_a_row_states_its_solution(row: dict[str, Any]) -> None:
    facts = {"id", "date", "release", "class", "also", "at", "before", "line", "after", "words", "solution", "solves"}
    assert set(row) <= facts
    assert {row["class"], *row.get("also", ())} <= {*classes_by_kind(), UNKNOWN}
    assert len(row["solution"]) > len("--flag")
