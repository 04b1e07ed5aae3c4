"""Adopting a release: what is new is listed, and what is not declared fails."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sglang_hydra.arguments.tables.successors import Successor
from sglang_hydra.arguments.tables.table import known_versions, release

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))  # the tools import each other by their names

import adopt_release  # noqa: E402


def test_the_changes_of_a_release_are_listed() -> None:
    changes = dict(adopt_release.changes_of("0.5.20"))
    assert "--disable-piecewise-cuda-graph" in changes["old flags that are no longer accepted"]
    assert "enable_prefill_context_parallel" in changes["removed arguments"]
    assert "swa_full_tokens_ratio" in changes["defaults that moved"]


def test_a_question_is_listed_once_without_its_line() -> None:
    asked = ["unanswered question: the file /proc/x (utils/common.py:12)", "unanswered question: the file /proc/x"]
    assert list(adopt_release.questions_of(asked, "0.5.24")) == ["0.5.24 asks: unanswered question: the file /proc/x"]


def test_a_declared_question_is_not_new(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = {"questions": {"unanswered question: the file /proc/.*": "a reason"}}
    monkeypatch.setattr(adopt_release, "declarations", lambda: declared)
    assert list(adopt_release.questions_of(["unanswered question: the file /proc/x (a.py:1)"], "0.5.24")) == []


@pytest.mark.parametrize("version", known_versions()[1:])
def test_nothing_that_a_known_release_removed_is_left_undeclared(version: str) -> None:
    assert list(adopt_release.undeclared_successors(version)) == []


def test_a_successor_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopt_release, "successor", lambda name, version: Successor(None))
    names = " ".join(adopt_release.undeclared_successors("0.5.20"))
    assert "prefill_cp_mode is gone" in names


def test_every_declaration_has_a_reason() -> None:
    assert all(reason for rows in adopt_release.declarations().values() for reason in rows.values())


def test_two_new_questions_fail_until_they_are_declared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adopt_release, "_recorded", lambda version, folder, check: ["asks a (x.py:1)", "asks b"])
    assert adopt_release.main(["--check", "0.5.23"]) == 1
    assert "0.5.23: 2 new questions, to be declared" in capsys.readouterr().out
    monkeypatch.setattr(adopt_release, "declarations", lambda: {"questions": {"asks [ab]": "a reason"}})
    assert adopt_release.main(["--check", "0.5.23"]) == 0


def test_an_undeclared_argument_of_a_new_release_fails_until_it_is_declared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest release as it would be without an argument that the one before has and nothing succeeds."""
    newest, before = known_versions()[-1], known_versions()[-2]
    gone = {name: argument for name, argument in release(newest).arguments.items() if name != "schedule_policy"}
    tables = {newest: replace(release(newest), arguments=gone), before: release(before)}
    monkeypatch.setattr(adopt_release, "release", tables.__getitem__)
    monkeypatch.setattr(adopt_release, "_recorded", lambda version, folder, check: ["asks a (x.py:1)"])
    monkeypatch.setattr(
        adopt_release, "successor", lambda name, version: Successor(None if name == "schedule_policy" else "another")
    )
    assert adopt_release.main(["--check", newest]) == 1
    printed = capsys.readouterr().out
    assert f"{newest}: 2 new questions, to be declared" in printed
    assert "schedule_policy is gone: what took its place? (successors.json)" in printed
    declared = {"questions": {"asks a": "a reason"}, "arguments": {"schedule_policy": "a reason"}}
    monkeypatch.setattr(adopt_release, "declarations", lambda: declared)
    assert adopt_release.main(["--check", newest]) == 0
    assert f"{newest}: adopted; nothing new to declare" in capsys.readouterr().out


def test_the_scheduled_workflow_runs_the_tool() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "adopt.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["adopt"]["steps"]
    assert any("tools/adopt_release.py --newest" in step.get("run", "") for step in steps)
    assert workflow[True]["schedule"]
    (adopting,) = (step["run"] for step in steps if step.get("id") == "adopt")
    assert "git add --all sglang_hydra tools" in adopting, "a release's new file of answers is part of the patch"
    assert "git diff --cached --binary" in adopting
