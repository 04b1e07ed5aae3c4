"""``audit`` and ``recipes`` by another release than 0.5.2: by its recorded answers, and nothing asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.fields import fresh_defaults
from sglang_hydra.releases import asking
from sglang_hydra.releases.recorded import key_of
from sglang_hydra.releases.records import Record
from sglang_hydra.releases.release import Answer, Case
from tests.commands import Run, must_follow, runner
from tests.plans import planned

RELEASE = "engine.version=0.5.23"
PART = ("gpu=h200", "model=qwen3_8b")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    made = runner(capsys, monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", str(tmp_path))  # no wheel is here, and no answer is kept
    monkeypatch.setenv("SGLANG_HYDRA_OFFLINE", "1")
    return made


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Answer]:
    """The recorded answers, by what they are recorded under."""
    answers: dict[str, Answer] = {}
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: answers.get(key_of(case)))
    return answers


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """The cases that were looked for."""
    cases: list[Case] = []

    def look(record: Record, case: Case, why: bool) -> None:
        cases.append(case)

    monkeypatch.setattr(asking, "recorded_answer", look)
    return cases


def accepted(**changed: Any) -> Answer:
    defaults = {name: value for name, value in fresh_defaults().items() if name != "cuda_graph_bs"}
    return Answer(True, {**defaults, "model_path": "Qwen/Qwen3-8B", **changed})


def cells(run: Run, *words: str) -> dict[str, dict[str, Any]]:
    record = json.loads(run("audit", *PART, *words, "--json").out)
    must_follow(record, "audit")
    return {cell["name"]: cell for cell in record["cells"]}


@pytest.mark.parametrize(
    "words",
    [
        ("gpu=h200", "model=qwen3_8b", "tp_size=1"),
        ("gpu=mi300x", "model=deepseek_v3", "tp_size=1"),
        ("gpu=b200", "model=gpt_oss_120b", "tp_size=1"),
    ],
)
def test_a_cell_is_the_case_of_the_plain_plan(run: Run, asked: list[Case], words: tuple[str, ...]) -> None:
    gpu, model, _ = words
    planned(RELEASE, *words)
    case, *_ = asked  # the others are of remedies
    asked.clear()
    run("audit", RELEASE, gpu, model)
    assert key_of(case) in [key_of(found) for found in asked]


@pytest.mark.parametrize("id", ["qwen3_8b-h200-1", "deepseek_r1-b200-8-low-latency"])
def test_a_recipe_is_the_case_of_its_plan(run: Run, asked: list[Case], id: str) -> None:
    planned(RELEASE, f"recipe={id}")
    case, *_ = asked
    asked.clear()
    model, gpu, *_ = id.split("-")
    run("recipes", RELEASE, f"gpu={gpu}", f"model={model}")
    assert key_of(case) in [key_of(found) for found in asked]


def test_a_cell_without_a_recorded_answer_was_not_asked(run: Run, recorded: dict[str, Answer]) -> None:
    cell = cells(run, RELEASE)["qwen3_8b h200"]
    assert (cell["state"], cell["why"], cell["kv_tokens"]) == ("not asked", [], None)
    screen = run("audit", *PART, RELEASE).out
    assert "not asked" in screen
    assert "--exact asks the release's wheel" in screen


def test_a_recorded_answer_is_judged_over_the_releases_values(
    run: Run, recorded: dict[str, Answer], asked: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(RELEASE, *PART, "tp_size=1")
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: recorded.get(key_of(case)))
    tokens = []
    for fraction in (0.5, 0.8):
        recorded[key_of(asked[0])] = accepted(mem_fraction_static=fraction)
        cell = cells(run, RELEASE)["qwen3_8b h200"]
        assert (cell["state"], cell["tp_size"]) == ("ok", 1)
        tokens.append(cell["kv_tokens"])
    assert tokens[0] < tokens[1]
    recorded[key_of(asked[0])] = Answer(False, stage="check", error="AssertionError")
    refused = cells(run, RELEASE)["qwen3_8b h200"]
    assert (refused["state"], refused["why"]) == ("refused", ["REL010"])


def test_exact_asks_what_is_not_recorded(
    run: Run, recorded: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cells(run, RELEASE, "--exact")["qwen3_8b h200"]
    assert (cell["state"], cell["why"]) == ("not asked", ["REL011"])
    monkeypatch.setattr(asking, "kept_answer_to", lambda record, case, **_: accepted(mem_fraction_static=0.8))
    assert cells(run, RELEASE)["qwen3_8b h200"]["state"] == "not asked"
    assert cells(run, RELEASE, "--exact")["qwen3_8b h200"]["state"] == "ok"


def test_0_5_2_is_the_default(run: Run, asked: list[Case]) -> None:
    assert cells(run) == cells(run, "engine.version=0.5.2")
    assert asked == []


def test_exact_belongs_to_the_catalog(run: Run) -> None:
    refused = run("plan", "--exact", *PART)
    assert refused.code == 2
    assert "--exact goes with audit and recipes" in refused.err


def test_recipes_name_the_release_that_judges(run: Run, recorded: dict[str, Answer]) -> None:
    assert "verdict on 0.5.23" in run("recipes", RELEASE, "gpu=h200", "model=gpt_oss").out
    unknown = run("recipes", "engine.version=9.9.9")
    assert "engine.version=9.9.9" in unknown.err
