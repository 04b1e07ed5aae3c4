"""Which release a plan is for: what was named, what is installed, what the user chose, the newest that serves it."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from sglang_hydra.arguments.tables.table import has_class
from sglang_hydra.planning.engines import planned as planned_engines
from sglang_hydra.planning.engines.base import Availability
from sglang_hydra.planning.making import target
from sglang_hydra.planning.making.target import Needed, newest_serving
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases import resolving
from sglang_hydra.releases.asking import Asking, NoAnswer
from sglang_hydra.releases.records import default_release, newest_release, records
from sglang_hydra.text import user_settings
from tests.commands import Run, must_follow, runner
from tests.for_0_5_2 import VARIABLE
from tests.plans import planned, without_engines

NEWEST = newest_release()
QWEN3_5 = ("gpu=h200", "model=qwen3_5_397b", "tp_size=8")
"""A model whose class came with 0.5.9."""


@pytest.fixture(scope="module", autouse=True)
def plans_are_for_0_5_2() -> None:
    """Here nothing decides, as nothing does on most machines."""


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def ids(plan: Plan) -> set[str]:
    return {finding.id for finding in plan.findings}


def _only_before(version: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if ``version`` and later releases had no class ``name``."""
    order = list(records())

    def without(known: str, classes: Iterable[str]) -> bool | None:
        return has_class(known, [one for one in classes if one != name or order.index(known) < order.index(version)])

    monkeypatch.setattr(target, "has_class", without)


def test_a_plan_is_for_the_newest_recorded_release() -> None:
    for model in ("qwen3_8b", "qwen3_5_397b"):
        plan = planned("gpu=h200", f"model={model}", "tp_size=8")
        assert plan.engine.version == NEWEST == list(records())[-1]
        assert "REL013" not in ids(plan)


def test_a_model_that_the_newest_has_no_class_for_gets_the_newest_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _only_before("0.5.21", "Qwen3_5MoeForConditionalGeneration", monkeypatch)
    plan = planned(*QWEN3_5)
    assert plan.engine.version == "0.5.20"
    (finding,) = [item for item in plan.findings if item.id == "REL013"]
    assert (finding.level, finding.hint) == ("info", "engine.version=0.5.20 in a file pins it")
    assert "it is the newest recorded release that has a class Qwen3_5Moe" in str(plan.engine.note)
    assert plan.server_id == planned(*QWEN3_5, "engine.version=0.5.20").server_id


def test_a_class_that_is_gone_is_served_by_the_last_release_that_had_it() -> None:
    assert newest_serving([Needed(("VILAForConditionalGeneration",))]) == "0.5.4"


def test_what_the_newest_refuses_gets_the_newest_that_is_recorded_to_accept_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("gpu=gaudi2", "model=nemotron_3_nano", "tp_size=1")
    assert "REL010" in ids(planned(*words, f"engine.version={NEWEST}"))
    plan = planned(*words)
    assert plan.engine.version == "0.5.12"
    assert plan.basis == "recorded"
    assert not {"REL010", "REL011"} & ids(plan)
    (finding,) = [item for item in plan.findings if item.id == "REL013"]
    assert f"does not refuse this, as {NEWEST} does" in finding.message
    monkeypatch.setattr("sglang_hydra.releases.recorded.recorded_releases", lambda: ())
    assert "REL010" in ids(planned(*words))


def test_what_a_person_typed_wrong_is_refused_by_the_newest() -> None:
    plan = planned("gpu=gaudi2", "model=nemotron_3_nano", "tp_size=1", "max_running_requests=9")
    assert plan.engine.version == NEWEST


@pytest.mark.parametrize("version", ["0.5.2", "0.5.8"])
def test_a_release_that_was_named_is_kept(version: str) -> None:
    plan = planned(*QWEN3_5, f"engine.version={version}")
    assert plan.engine.version == version
    assert "RUN015" in ids(plan)


def test_what_is_installed_goes_before_the_users_choice_and_that_before_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "0.5.20")
    user_settings.begin()
    assert planned(*QWEN3_5).engine.version == default_release() == "0.5.20"
    assert planned(*QWEN3_5, "engine.version=0.5.18").engine.version == "0.5.18"
    here = Availability(True, "0.5.8", None)
    monkeypatch.setattr(planned_engines.SGLANG, "available", lambda python=None: here)
    plan = planned(*QWEN3_5)
    assert plan.engine.version == "0.5.8"
    assert "RUN015" in ids(plan)
    monkeypatch.delenv(VARIABLE)
    user_settings.begin()


@pytest.mark.parametrize("word", ["model_impl=transformers", "engine.env.SGLANG_EXTERNAL_MODEL_PACKAGE=mine"])
def test_a_class_from_elsewhere_leaves_the_newest(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _only_before("0.5.21", "Qwen3_5MoeForConditionalGeneration", monkeypatch)
    assert planned(*QWEN3_5, word).engine.version == NEWEST


def test_the_newest_release_of_several_models(monkeypatch: pytest.MonkeyPatch) -> None:
    qwen3_5, deepseek_v4 = Needed(("Qwen3_5MoeForConditionalGeneration",)), Needed(("DeepseekV4ForCausalLM",))
    assert newest_serving([Needed(("Qwen3ForCausalLM",)), Needed()]) == NEWEST
    assert newest_serving([qwen3_5, deepseek_v4]) == NEWEST
    assert newest_serving([qwen3_5, Needed(("NobodyForCausalLM",))]) is None
    _only_before("0.5.21", "DeepseekV4ForCausalLM", monkeypatch)
    assert newest_serving([qwen3_5, deepseek_v4]) == "0.5.20"
    _only_before("0.5.10", "GlmMoeDsaForCausalLM", monkeypatch)
    assert newest_serving([Needed(("GlmMoeDsaForCausalLM",), None)]) == "0.5.9"
    assert newest_serving([Needed(("GlmMoeDsaForCausalLM",), "glm_moe_dsa")]) is None, "0.5.9 cannot read its config"


@pytest.mark.parametrize("verb", ["plan", "fit"])
def test_a_table_has_one_release_for_all_its_rows(run: Run, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = run(verb, "-m", "--json", "gpu=h200", "tp_size=8", "model=qwen3_8b,qwen3_5_397b")
    assert "REL013" not in table.err
    _only_before("0.5.21", "Qwen3_5MoeForConditionalGeneration", monkeypatch)
    table = run(verb, "-m", "--json", "gpu=h200", "tp_size=8", "model=qwen3_8b,qwen3_5_397b")
    assert "SGLang 0.5.20 is the newest recorded one that serves each of these models" in " ".join(table.err.split())
    alone = run("fit", "--json", "gpu=h200", "tp_size=8", "model=qwen3_8b", "engine.version=0.5.20")
    assert table.code == 0
    (server_id,) = {part.partition('"')[0] for part in alone.out.split('"server_id": "')[1:]}
    assert server_id in table.out


def test_a_table_in_which_the_release_varies_keeps_each(run: Run) -> None:
    table = run("fit", "-m", "gpu=h200", "tp_size=8", "model=qwen3_8b,qwen3_5_397b", "engine.version=0.5.9,0.5.23")
    assert "REL013" not in table.err
    assert "engine.version=0.5.23" in table.out


def test_a_diff_of_two_releases_ends_with_what_one_alone_has(run: Run) -> None:
    server = "gpu=h200 model=qwen3_8b max_running_requests=9"  # of which no answer ships
    screen = run("diff", f"{server} engine.version=0.5.18", f"{server} engine.version=0.5.23")
    assert screen.code == 0
    values, only_left, only_right = screen.out.partition("Only in 0.5.18")[0], "Only in 0.5.18", "Only in 0.5.23"
    assert "file_storage_path" in values
    assert "(not in" not in screen.out
    assert "dsa_prefill_cp_mode=" in screen.out.partition(only_left)[2].partition(only_right)[0]
    assert "gated_launch_port=null" in " ".join(screen.out.partition(only_right)[2].split())


def test_what_decides_itself_is_fetched_and_what_an_installation_names_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[bool] = []

    def noted(case: object, version: str, asking: Asking) -> NoAnswer:
        allowed.append(asking.may_fetch)
        return NoAnswer("not asked")

    monkeypatch.setattr(resolving, "answer_to", noted)
    server = ("gpu=h200", "model=qwen3_8b")
    for words in (server, (*server, "engine.version=0.5.20")):
        planned(*words)
        assert allowed.pop(0), "the first question, before those on what would help"
        allowed.clear()
    here = Availability(True, "0.5.18", None)
    monkeypatch.setattr(planned_engines.SGLANG, "available", lambda python=None: here)
    planned(*server)
    assert not any(allowed)


def test_a_recipe_is_planned_by_a_release_that_has_its_arguments() -> None:
    of_recipe = planned("recipe=deepseek_r1-b200-8-low-latency")
    assert (of_recipe.engine.version, of_recipe.launchable) == ("0.5.18", True), "recorded, and has cuda_graph_max_bs"
    assert "REL013" in ids(of_recipe)
    typed = planned("recipe=deepseek_r1-b200-8-low-latency", "cuda_graph_max_bs=256")
    assert "VER004" in ids(typed), "what a person typed is refused by the newest, with what took its place"
    pinned = planned("recipe=deepseek_r1-b200-8-low-latency", f"engine.version={NEWEST}")
    assert "VER004" in ids(pinned)


def test_each_recipe_is_judged_by_a_release_that_has_its_arguments(run: Run) -> None:
    record = json.loads(run("recipes", "--json").out)
    must_follow(record, "recipes")
    judged = record["recipes"]
    assert not [item["id"] for item in judged if "VER004" in item["why"]]
    assert {item["release"] for item in judged} == {None, "0.5.18", "0.5.2"}
    named = json.loads(run("recipes", "--json", f"engine.version={NEWEST}").out)["recipes"]
    assert sum("VER004" in item["why"] for item in named) == 22
