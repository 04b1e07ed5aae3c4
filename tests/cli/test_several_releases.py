"""check with several --against: what each release makes of one command line, beside each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sglang_hydra.cli import against
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.upstream.ask import Authority
from sglang_hydra.planning.upstream.verdict import Verdict
from tests.commands import H200, Run, runner, valid

OLD, NEW = "0.5.18", "0.5.23"
TWO = ("--against", OLD, "--against", NEW)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The releases need no wheel: the plans are from their recorded answers, and the newer one refuses page_size=3."""

    def asked(authority: Authority, plans: Sequence[Plan]) -> list[Plan]:
        refuses = authority.version == NEW and plans[0].intent.get("page_size") == 3
        verdict = Verdict(authority, not refuses, error="ValueError: no" if refuses else None, stage="check")
        return [replace(plan, authority=verdict, findings=verdict.findings(plan)) for plan in plans]

    monkeypatch.setattr(against, "find_authority", lambda where, python: Authority(None, where, where))
    monkeypatch.setattr(against, "asked", asked)
    return runner(capsys, monkeypatch)


def test_each_release_has_its_verdict_and_each_value_in_which_they_differ_a_row(run: Run) -> None:
    done = run("check", *TWO, *H200)
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[:3] == ["overrides", f"  {OLD}  accepts it", f"  {NEW}  accepts it"]
    assert lines[3].split() == [OLD, NEW]
    assert ["file_storage_path", "sglang_storage", "null"] in [line.split() for line in lines]
    assert lines[-2].endswith("arguments are in some of them only, at their defaults or as typed")


def test_one_refusal_decides(run: Run) -> None:
    done = run("check", *TWO, *H200, "page_size=3")
    assert done.code == 2
    assert f"  {NEW}  refuses it: ValueError: no\n" in done.out
    record = valid("check", run("check", "--json", *TWO, *H200, "page_size=3").out)
    assert [result["authority"]["version"] for result in record["results"]] == [OLD, NEW]


def test_plan_takes_one(run: Run) -> None:
    done = run("plan", "--json", *TWO, *H200)
    assert done.code == 2
    assert "plan takes one --against" in json.dumps(done.out + done.err)
