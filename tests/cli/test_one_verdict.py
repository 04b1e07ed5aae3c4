"""One verdict everywhere: yes, no or not known, with one reason and one exit code, wherever a plan is judged."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra import plan
from sglang_hydra.cli.answers import answer
from tests.commands import Run, runner, valid

NOT_ASKED = "SGLang 0.5.9 was not asked: its wheel is not here (4 MiB to fetch)"
GLM = ["engine.version=0.5.9", "gpu=h200", "model=glm_5_fp8", "tp_size=8"]
CASES: Mapping[str, tuple[list[str], bool | None, str]] = {
    "a model that its transformers cannot read": (GLM, None, NOT_ASKED),
    "several servers of it": ([*GLM, "topology=replicas", "replicas=1"], None, NOT_ASKED),
    "an answer that is not recorded": (
        ["engine.version=0.5.23", "gpu=h200", "model=qwen3_8b", "schedule_policy=fcfs", "stream_interval=7"],
        None,
        "SGLang 0.5.23 was not asked: its wheel is not here",
    ),
    "a model that nobody knows": (
        ["engine.version=0.5.2", "gpu=h200", "model_path=acme/unheard-of"],
        None,
        "the model's config.json",
    ),
    "an argument that the release refuses": (
        ["engine.version=0.5.2", "gpu=h200", "model=qwen3_8b", "attention_backend=torch_native", "page_size=0"],
        False,
        "(",
    ),
    "no room": (["engine.version=0.5.2", "gpu=h100", "model=llama_3_1_70b"], False, "it does not fit"),
    "all is well": (["engine.version=0.5.2", "gpu=h200", "model=qwen3_8b"], True, ""),
}
WORDS = {True: "can be launched", None: "whether it can be launched is not known"}
ANSWERS = {True: "yes", False: "no", None: "unknown"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("words", "launchable", "why"), CASES.values(), ids=CASES)
def test_every_verb_says_the_same(words: list[str], launchable: bool | None, why: str, run: Run) -> None:
    code = 2 if launchable is False else 0
    is_one = "topology=replicas" not in words

    shown = run("plan", *words)
    made = json.loads(run("plan", *words, "--json").out)
    assert (shown.code, made["launchable"]) == (code, launchable)
    assert why in made["why"]
    assert flat(shown.out).startswith(f"Launch {ANSWERS[launchable]}")
    reason = made["why"][:60]
    assert launchable or flat(reason) in flat(shown.out)

    records: dict[str, Any] = {
        "check": valid("check", run("check", *words, "--json").out)["results"][0],
        "check -m": valid("check", run("check", "-m", *words, "--json").out)["results"][0],
        "diff": valid("diff", run("diff", " ".join(words), " ".join(words), "--json").out)["left"],
        "fit": valid("fit", run("fit", *words, "--json").out)["results"][0] if is_one else made,
    }
    for verb, record in records.items():
        assert (record["launchable"], record["why"]) == (launchable, made["why"]), verb

    checked = run("check", *words)
    assert checked.code == code
    assert launchable is False or WORDS[launchable] in flat(checked.out)
    assert run("fit", *words).code == code
    exported = run("export", "shell" if is_one else "compose", *words)
    assert (exported.code, exported.out != "") == (code, launchable is not False)

    review = run("check", *words, "--format=markdown")
    assert review.code == code
    assert {True: "all can be launched", False: "cannot be launched", None: "it is not known"}[launchable] in review.out


@pytest.mark.parametrize(
    ("words", "launchable"), [(words, answer) for words, answer, _ in CASES.values() if len(words) < 6]
)
def test_the_page_and_a_notebook_say_the_same(words: list[str], launchable: bool | None, run: Run) -> None:
    made = plan(words)
    page = json.loads(answer(json.dumps({"ask": "plan", "words": words})))
    assert page["launch"] == ANSWERS[launchable]
    assert page["why"] == ("its config.json is needed" if page["hub"] else made.verdict.why)
    assert (not page["commands"]) is (launchable is False)
    shown = html.unescape(made._repr_html_())
    assert f"{made.verdict.sentence}" in shown
    assert made.verdict.why in shown


def test_only_fail_on_unknown_makes_it_an_error(run: Run) -> None:
    for verb in (["plan"], ["check"], ["fit"], ["export", "shell"]):
        assert run(*verb, *GLM).code == 0
        assert run(*verb, *GLM, "--fail-on=unknown").code == 2


def test_figures_of_an_estimate_are_marked(run: Run) -> None:
    """Capacity, limit and forecast of a plan whose release was not asked; of one that was, nothing is marked."""
    mark = "by estimate"
    verbs = (["plan"], ["fit"], ["explain", "roofline"], ["explain", "forecast"], ["fit", "-m"], ["plan", "--load"])
    for verb in verbs:
        load = ["bench.concurrency=8"]
        assert mark in flat(run(*verb, *GLM, *load).out), verb
        assert mark not in flat(run(*verb, *CASES["all is well"][0], *load).out), verb
    for kind in ("roofline", "forecast"):
        record = valid(kind, run("explain", kind, *GLM, "bench.concurrency=8", "--json").out)
        assert record["basis"] == "rules"
    suggested = valid("suggest", run("suggest", *GLM[:3], "--json").out)["suggestions"]
    assert {(item["launchable"], item["basis"]) for item in suggested} == {(None, "rules")}
    assert all(item["why"].startswith(NOT_ASKED) for item in suggested)
    assert flat(run("suggest", *GLM[:3]).out).count(NOT_ASKED) == 1


def test_points_of_a_sweep_are_counted_by_what_is_known(run: Run) -> None:
    out = flat(run("plan", "-m", *GLM[:3], "tp_size=4,8").out)
    assert "0 of 2 points can be launched" in out
    assert f"1 point unknown: {NOT_ASKED}" in out
    assert re.search(r"tp_size=8 whether it can be launched is not known", out)
