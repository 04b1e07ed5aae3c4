"""Real releases, explained: the same values as real installs, and a place and a condition for what changed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.releases import wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.process import Child, end_children
from sglang_hydra.releases.records import record_of
from sglang_hydra.releases.release import ask_release

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from conformance_releases import differences  # noqa: E402
from release_cases import CASES, MODELS, machines, read_cases  # noqa: E402

pytestmark = pytest.mark.registry


@pytest.fixture(autouse=True, scope="module")
def no_child_left() -> Iterator[None]:
    yield
    end_children()


def fetched(version: str) -> str:
    record = record_of(version)
    assert record is not None
    wheels.fetch(record)
    return version


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["0.5.12", "0.5.18", "0.5.23"])
def test_reasons_change_no_value(version: str) -> None:
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    rows = [row for row in read_cases(CASES) if row["release"] == fetched(version)]
    asked = [Case(tuple(row["argv"]), row["machine"], {name: models[name] for name in row["models"]}) for row in rows]
    answers = ask_release(version, asked, use_kept=False, why=True)
    wrong = {row["id"]: differences(row["expected"], answer) for row, answer in zip(rows, answers, strict=True)}
    assert {name: found for name, found in wrong.items() if found} == {}
    assert all(answer.changes for answer in answers)


@pytest.mark.timeout(900)
def test_changes_have_places_and_conditions() -> None:
    for version in ("0.5.2", "0.5.18", "0.5.23"):
        fetched(version)
    command = [
        sys.executable,
        str(ROOT / "tools" / "explained_releases.py"),
        "0.5.2",
        "0.5.18",
        "0.5.23",
        "--every",
        "7",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_case_of_a_child_and_a_later_one_give_the_same_answer() -> None:
    record = record_of(fetched("0.5.23"))
    assert record is not None
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    rows = [row for row in read_cases(CASES) if row["release"] == "0.5.23"]
    asked = [
        {
            **Case(tuple(row["argv"]), machines()[0], {name: models[name] for name in row["models"]}).to_json(),
            "why": True,
        }
        for row in rows[:2]
    ]
    child = Child(record, [wheels.place_of(wheel) or Path() for wheel in record.wheels], asked[0]["machine"])
    answers = [child.ask(case) for case in (*asked, asked[0])]
    child.end()
    assert answers[0]["why"]["changes"]
    assert answers[0] == answers[2]


def test_the_reasons_of_a_known_change() -> None:
    llama = json.loads(MODELS.read_text(encoding="utf-8"))["meta-llama/Llama-3.1-8B-Instruct"]
    b200: dict[str, Any] = dict(machines()[1])
    case = Case(("--model-path", "m", "--random-seed", "42"), b200, {"m": llama})
    (answer,) = ask_release(fetched("0.5.23"), [case], use_kept=False, why=True)
    (change,) = [change for change in answer.changes if change.field == "attention_backend"]
    assert change.after == "trtllm_mha"
    assert change.step is not None
    assert change.step.function == "_attention_backend_default"
    operands = [each.operands for each in change.step.all_conditions()]
    assert any(each.get("get_platform().is_sm100") is True for each in operands)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["0.5.18", "0.5.21", "0.5.23"])
def test_reasons_computed_again_come_out_as_they_are_shown(version: str) -> None:
    fetched(version)
    command = [sys.executable, str(ROOT / "tools" / "recomputed_reasons.py"), version, "--changes", "200"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
