"""Threads of others: what was typed there, with the finding that answers it, or that would be false."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import Run, runner
from tests.plans import planned

FILE = Path(__file__).parents[1] / "data" / "threads.yaml"
ROWS: dict[str, list[dict[str, Any]]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
EACH = [pytest.param(row, id=f"{name} {row['thread']}") for name, rows in ROWS.items() for row in rows]
VERBS = ("export", "fit", "explain", "plan")


@pytest.fixture(autouse=True)
def plans_are_for_0_5_2() -> None:
    """Here a plan is for the newest, as outside of the tests."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.mark.parametrize("row", EACH)
def test_a_thread_has_its_answer(row: dict[str, Any], run: Run) -> None:
    words = shlex.split(row["typed"])
    if words[0] in VERBS:
        shown = " ".join(run(*words).out.split())
        assert [said for said in row["says"] if said not in shown] == []
        return
    plan = planned(*words)
    found = [f"{finding.id} {finding.message}" for finding in plan.findings]
    for wanted in row.get("finds", ()):
        identity, _, said = wanted.partition(" ")
        assert any(text.startswith(identity) and said in text for text in found), (wanted, found)
    assert [text for text in found if text[:6] in row.get("silent", ())] == []
    if "first" in row:
        offers = [remedy for finding in plan.findings if finding.id.startswith("FIT") for remedy in finding.remedies]
        wanted = row["first"]
        assert " ".join(offers[0].words) in ([wanted] if isinstance(wanted, str) else wanted)
    if "fits" in row:
        assert plan.launchable is row["fits"], found


def test_each_question_has_five_threads_and_one_against() -> None:
    questions = "fraction kernels pools host pods draft parser ignored start remedy"
    assert set(ROWS) == set(questions.split())
    assert min(len(rows) for rows in ROWS.values()) >= 5
    for name in ("fraction", "kernels", "pools", "host", "parser", "ignored"):
        assert any("silent" in row for row in ROWS[name]), name
