"""``suggest``: plans to choose from, each launchable and large enough, ranked as it says."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.planning.suggest import GOALS
from tests.plans import planned

LLAMA = ["model=llama_3_1_70b", "context=32k", "concurrency=64"]


def suggested(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    entry(["suggest", *words, "--json"])
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


CASES: dict[str, tuple[list[str], list[str]]] = {
    "idle_gpus": (["model=llama_3_1_70b", "gpu=h100"], ["tp_size=4"]),
    "one_gpu_is_enough": (["model=qwen3_8b", "gpu=h200"], []),
    "a_smaller_cache": ([*LLAMA, "gpu=h100"], ["tp_size=8", "kv_cache_dtype=fp8_e4m3"]),
    "several_classes": ([*LLAMA, "gpu=h100,h200"], ["gpu=h200", "tp_size=4", "kv_cache_dtype=fp8_e4m3"]),
    "more_nodes": (["model=deepseek_v3", "gpu=h100"], ["tp_size=16", "nnodes=2"]),
    "what_is_typed_stays": ([*LLAMA, "gpu=h200", "kv_cache_dtype=auto"], ["tp_size=8"]),
    "the_typed_size_stays": (["model=qwen3_8b", "gpu=h200", "tp_size=2"], []),
    "fewest_gpus": (["model=gpt_oss_120b", "gpu=h200", "context=32k", "goal=gpus"], []),
    "lowest_latency": (["model=gpt_oss_120b", "gpu=h200", "context=32k", "goal=latency"], ["tp_size=8"]),
    "nothing_holds": (["model=qwen3_8b", "gpu=t4", "context=1M"], ["none"]),
}


@pytest.mark.parametrize(("words", "first"), CASES.values(), ids=CASES)
def test_the_best_plan_is_the_first(words: list[str], first: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = suggested(capsys, *words)["suggestions"]
    assert (found[0]["words"] if found else ["none"]) == first


@pytest.mark.parametrize("goal", GOALS)
def test_every_plan_can_be_launched_and_holds_the_load(goal: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = suggested(capsys, *LLAMA, "gpu=h100,h200,b200", f"goal={goal}")
    assert (record["context"], record["concurrency"], record["ranked_by"]) == (32000, 64, GOALS[goal])
    assert 3 <= len(record["suggestions"]) <= 5
    for item in record["suggestions"]:
        words = shlex.split(item["command"])[2:]
        plan = planned(*words, "fit.context=32000", "fit.users=64")
        assert plan.launchable
        assert not [finding for finding in plan.findings if finding.id.startswith("FIT")]
        assert plan.fit is not None
        assert (plan.fit.gpus, plan.fit.kv_tokens) == (item["gpus"], item["kv_tokens"])
        assert item["requests"] >= 64


RANKS: dict[str, Any] = {
    "gpus": lambda item: item["gpus"],
    "latency": lambda item: item["limit"]["tpot_all"],
    "throughput": lambda item: -item["limit_when_full"]["tokens_per_gpu"],
}


@pytest.mark.parametrize("goal", GOALS)
def test_it_ranks_as_it_says(goal: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = suggested(capsys, *LLAMA, "gpu=h100,h200,b200", f"goal={goal}")["suggestions"]
    own = [RANKS[goal](item) for item in found if item["keeps_model"]]
    assert own == sorted(own)
    assert [item["keeps_model"] for item in found] == sorted((item["keeps_model"] for item in found), reverse=True)


def test_the_screen_has_commands_the_ranking_and_what_a_limit_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["suggest", *LLAMA, "gpu=h100,h200"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "64 of 32,000 tokens",
        "1: sglang-hydra serve model=llama_3_1_70b",
        "Ranked by the fewest",
        "no forecast",
    ):
        assert words in shown


WRONG = {
    "goal=fast": "goal=fast is no goal",
    "context=32x": "context=32x is no number above 0",
    "concurrency=0": "concurrency=0 is no number above 0",
}


@pytest.mark.parametrize(("word", "message"), WRONG.items(), ids=WRONG)
def test_a_word_that_means_nothing_is_refused(word: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["suggest", "gpu=h100", "model=qwen3_8b", word]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("words", "id"), [(["gpu=h100"], "ARG002"), (["model=qwen3_8b", "gpu=none"], "DEV")])
def test_what_is_missing_is_named(words: list[str], id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["suggest", *words, "--json"]) == 2
    assert any(finding["id"].startswith(id) for finding in json.loads(capsys.readouterr().out)["findings"])


def test_a_release_is_not_asked_of_layouts_that_cannot_hold_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_hydra.planning import suggest

    planned_with: list[list[str]] = []
    plan_of = suggest._plan

    def noting(composer: Any, requests: Any) -> Any:
        planned_with.append([request.text for request in requests])
        return plan_of(composer, requests)

    monkeypatch.setattr(suggest, "_plan", noting)
    assert entry(["suggest", "model=llama_3_1_70b", "gpu=h100", "--json"]) == 0
    ranks = [word for words in planned_with[1:] for word in words if word.startswith(("tp_size=", "model_path="))]
    assert len(ranks) >= len(planned_with) - 1  # 131 GiB on one GPU of 80 GiB is never planned
