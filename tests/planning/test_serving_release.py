"""Which release a plan is for: the one that was named, the one that is installed, or one that can serve the model."""

from __future__ import annotations

import pytest

from sglang_hydra.planning.engines import planned as planned_engines
from sglang_hydra.planning.engines.base import Availability
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.serving_release import Needed, first_serving
from tests.commands import Run, runner
from tests.plans import planned, without_engines

QWEN3_5 = ("gpu=h200", "model=qwen3_5_397b", "tp_size=8")
"""A model whose class came with 0.5.9."""


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def ids(plan: Plan) -> set[str]:
    return {finding.id for finding in plan.findings}


def test_a_model_that_0_5_2_serves_is_planned_for_0_5_2() -> None:
    plan = planned("gpu=h200", "model=qwen3_8b")
    assert plan.engine.version == "0.5.2"
    assert "REL013" not in ids(plan)


def test_another_model_is_planned_for_the_first_release_that_has_its_class() -> None:
    plan = planned(*QWEN3_5)
    assert plan.engine.version == "0.5.9"
    (finding,) = [item for item in plan.findings if item.id == "REL013"]
    assert (finding.level, finding.hint) == ("info", "engine.version=0.5.9 in a file pins it")
    assert "0.5.9 is the first recorded release with Qwen3_5MoeForConditionalGeneration" in str(plan.engine.note)
    assert not {"RUN015", "MDL014"} & ids(plan)


def test_nvfp4_on_hopper_is_planned_for_the_first_release_that_runs_it_there() -> None:
    words = ("model=kimi_k2_6_nvfp4", "tp_size=8")
    assert planned("gpu=b200", *words).engine.version == "0.5.9"
    plan = planned("gpu=h200", *words)
    assert plan.engine.version == "0.5.13"
    assert "runs its format on h200" in next(item.message for item in plan.findings if item.id == "REL013")
    earlier = planned("gpu=h200", *words, "engine.version=0.5.12")
    assert "RUN001" in ids(earlier)
    assert not earlier.launchable


def test_where_that_release_refuses_the_next_one_that_accepts_is_taken() -> None:
    words = ("gpu=b300", "model=kimi_k3", "tp_size=8")
    plan = planned(*words)
    assert plan.engine.version == "0.5.18"
    assert "REL010" not in ids(plan)
    (finding,) = [item for item in plan.findings if item.id == "REL013"]
    assert "does not refuse this, as 0.5.17 does" in finding.message
    named = planned(*words, "engine.version=0.5.17")
    (refused,) = [item for item in named.findings if item.id == "REL010"]
    assert refused.message.endswith("(arg_groups/overrides.py:524)")


def test_the_plan_is_that_of_the_release_when_it_is_named() -> None:
    named = planned(*QWEN3_5, "engine.version=0.5.9")
    assert named.server_id == planned(*QWEN3_5).server_id
    assert "REL013" not in ids(named)


@pytest.mark.parametrize("version", ["0.5.2", "0.5.8"])
def test_a_release_that_was_named_is_kept(version: str) -> None:
    plan = planned(*QWEN3_5, f"engine.version={version}")
    assert plan.engine.version == version
    assert "RUN015" in ids(plan)


def test_a_release_that_is_installed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Availability(True, "0.5.8", None)
    monkeypatch.setattr(planned_engines.SGLANG, "available", lambda python=None: here)
    plan = planned(*QWEN3_5)
    assert plan.engine.version == "0.5.8"
    assert "RUN015" in ids(plan)


@pytest.mark.parametrize("word", ["model_impl=transformers", "engine.env.SGLANG_EXTERNAL_MODEL_PACKAGE=mine"])
def test_a_class_from_elsewhere_leaves_0_5_2(word: str) -> None:
    assert planned(*QWEN3_5, word).engine.version == "0.5.2"


def test_the_first_release_of_several_models() -> None:
    qwen3_5, deepseek_v4 = Needed(("Qwen3_5MoeForConditionalGeneration",)), Needed(("DeepseekV4ForCausalLM",))
    assert first_serving([Needed(("Qwen3ForCausalLM",)), Needed()]) is None
    assert first_serving([Needed(("Qwen3ForCausalLM",)), qwen3_5]) == "0.5.9"
    assert first_serving([qwen3_5, deepseek_v4]) == "0.5.12"
    assert first_serving([qwen3_5, Needed(("NobodyForCausalLM",))]) is None
    assert first_serving([deepseek_v4], after="0.5.12") == "0.5.13"
    assert first_serving([deepseek_v4], after="0.5.99") is None


@pytest.mark.parametrize(
    ("needed", "first"),
    [
        (Needed(("GlmMoeDsaForCausalLM",), "glm_moe_dsa"), "0.5.10"),  # 0.5.9 has the class, and transformers 4.57.1
        (Needed(("GlmMoeDsaForCausalLM",), None), "0.5.9"),
        (Needed(("GlmMoeDsaForCausalLM",), "nobody_knows"), "0.5.9"),
        (Needed(("DeepseekV32ForCausalLM",), "deepseek_v32"), "0.5.3"),  # which its own reader of configs knows
    ],
)
def test_a_release_that_has_the_class_but_cannot_read_the_config_is_not_chosen(needed: Needed, first: str) -> None:
    assert first_serving([needed]) == first


@pytest.mark.parametrize("verb", ["plan", "fit"])
def test_a_table_has_one_release_for_all_its_rows(run: Run, verb: str) -> None:
    table = run(verb, "-m", "--json", "gpu=h200", "tp_size=8", "model=qwen3_8b,qwen3_5_397b")
    assert "SGLang 0.5.9 is the first recorded one that serves each of these models" in " ".join(table.err.split())
    alone = run("fit", "--json", "gpu=h200", "tp_size=8", "model=qwen3_8b", "engine.version=0.5.9")
    assert table.code == 0
    (server_id,) = {part.partition('"')[0] for part in alone.out.split('"server_id": "')[1:]}
    assert server_id in table.out


def test_a_release_that_reads_the_config_is_chosen_with_trust_remote_code_too() -> None:
    words = ("gpu=h200", "model=minimax_m2", "tp_size=8")
    assert planned(*words, "trust_remote_code=true").engine.version == planned(*words).engine.version == "0.5.10"


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
