"""Plans for another release: by its own code, by a recorded answer of it, or an estimate that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.fields import fresh_defaults
from sglang_hydra.planning.comparing.difference import differences
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases import asking
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.records import Record
from sglang_hydra.rules.answer import Answer, Change, Condition, Step
from tests.commands import must_follow
from tests.plans import planned, refused

LATER = "engine.version=0.5.23"
SERVER = ("gpu=b200", "model=deepseek_v3", "tp_size=8")
SEED = "random_seed=42"
STEP = Step(
    "sglang/srt/arg_groups/memory_hook.py", 167, "settings", {}, (Condition("f.py", 160, True, {"gpu_mem": 183359.0}),)
)


def ids(plan: Plan) -> list[str]:
    return [finding.id for finding in plan.findings]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A release that answers what it is told to; ``asked`` has the command lines that it got."""

    class Release:
        answer = Answer(None, unanswered="unanswered question: the file /proc/meminfo (utils.py:1)")
        asked: list[tuple[str, ...]]
        machine: Mapping[str, Any]

        def values(self, **changed: Any) -> None:
            defaults = {name: value for name, value in fresh_defaults().items() if name != "cuda_graph_bs"}
            self.answer = Answer(True, {**defaults, "model_path": "deepseek-ai/DeepSeek-V3", **changed})

        def ask(self, record: Record, case: Case, **_: Any) -> Answer:
            self.asked.append(case.argv)
            self.machine = case.machine
            return self.answer

    made = Release()
    made.asked, made.machine = [], {}
    monkeypatch.setattr(asking, "recorded_answer", made.ask)
    return made


def test_the_values_are_the_releases_own() -> None:
    plan = planned(LATER, *SERVER)
    assert plan.basis == "recorded"
    assert plan.values["attention_backend"] == "trtllm_mla"
    assert (plan.values["page_size"], plan.values["moe_runner_backend"]) == (64, "flashinfer_trtllm")
    assert "cuda_graph_bs" not in plan.values
    (entry,) = plan.resolution.ledger.of("attention_backend")
    assert (entry.before, entry.after, entry.rule) == (None, "trtllm_mla", "0.5.23")
    assert "is_sm100=true" in entry.reason
    assert plan.launchable
    must_follow(plan.to_json(), "plan")


def test_a_fact_that_nobody_declared_is_asked_for_by_its_key(release: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: None)
    monkeypatch.setattr(asking, "kept_answer_to", release.ask)
    question = "unanswered question: the memory of the machine (the fact host_memory_mib) (utils.py:1)"
    release.answer = Answer(None, unanswered=question)
    why = f"SGLang 0.5.23 asks for a fact that the plan has not: {question}: engine.facts.host_memory_mib=..."
    assert planned(LATER, *SERVER).resolution.not_asked == why
    release.values(tp_size=8)
    assert planned(LATER, *SERVER, "engine.facts.host_memory_mib=2000000", "engine.facts.driver='580.1'").is_exact
    assert (release.machine["host_memory_mib"], release.machine["driver"]) == (2000000, "580.1")


def test_a_fact_that_no_release_asks_for_is_refused() -> None:
    (finding,) = refused(LATER, *SERVER, "engine.facts.drivr=1")
    assert (finding.id, finding.hint) == ("CLI030", "did you mean engine.facts.driver?")


def test_a_seed_that_is_drawn_is_no_other_question_and_no_other_server() -> None:
    one, other = planned(LATER, *SERVER, seed=1), planned(LATER, *SERVER, seed=2)
    assert (one.basis, other.basis) == ("recorded", "recorded")
    assert (one.values["random_seed"], other.values["random_seed"]) == (1, 2)
    assert one.server_id == other.server_id


def test_exact_and_recorded_are_one_server(release: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    release.values(tp_size=8, mem_fraction_static=0.8)
    recorded = planned(LATER, *SERVER, SEED)
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: None)
    monkeypatch.setattr(asking, "kept_answer_to", release.ask)
    exact = planned(LATER, *SERVER, SEED)
    assert (recorded.basis, exact.basis) == ("recorded", "exact")
    assert recorded.server_id == exact.server_id
    assert recorded.server_id != planned(LATER, *SERVER, "random_seed=43").server_id


def test_a_release_that_cannot_be_asked_leaves_an_estimate() -> None:
    plan = planned(LATER, *SERVER, "chunked_prefill_size=1234", SEED)
    assert plan.basis == "rules"
    assert "REL011" in ids(plan)
    (finding,) = [item for item in plan.findings if item.id == "REL011"]
    assert "its wheel is not here" in finding.message
    assert finding.hint == "sglang-hydra release fetch 0.5.23"
    assert "mem_fraction_static" in plan.unknown
    assert plan.resolution.known_values["mem_fraction_static"] is None
    assert plan.values["mem_fraction_static"] is not None
    assert plan.values["chunked_prefill_size"] == 1234
    record = plan.to_json()
    assert (record["basis"], "mem_fraction_static" in record["unknown"]) == ("rules", True)
    must_follow(record, "plan")


def test_a_question_without_an_answer_is_named(release: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: None)
    monkeypatch.setattr(asking, "kept_answer_to", release.ask)
    (finding,) = [item for item in planned(LATER, *SERVER).findings if item.id == "REL011"]
    assert "unanswered question: the file /proc/meminfo" in finding.message


def test_a_refusal_is_the_releases_own(release: Any) -> None:
    release.answer = Answer(False, stage="post_init", error="AssertionError: --tp-size is odd (hook.py:5)")
    plan = planned(LATER, *SERVER)
    (finding,) = [item for item in plan.findings if item.level == "error"]
    assert (finding.id, finding.stage, finding.ours) == ("REL010", "post_init", False)
    assert finding.fields == ("tp_size",)
    assert not plan.ok
    assert len(plan.resolution.ledger) == 0


def test_what_was_set_and_is_changed_is_a_warning(release: Any) -> None:
    release.values(tp_size=8, page_size=64)
    plan = planned(LATER, *SERVER, "page_size=16")
    (finding,) = [item for item in plan.findings if item.id == "REL012"]
    assert finding.message == "page_size=16 was set, and SGLang 0.5.23 makes it 64"
    assert finding.fields == ("page_size",)


def test_dp_attention_under_another_name_is_no_change(release: Any) -> None:
    server = ("gpu=h200", "model=deepseek_v3", "tp_size=8", "enable_dp_attention=true")
    release.values(tp_size=8, attn_dp_size=8, dp_size=1, enable_dp_attention=True)
    assert "REL012" not in ids(planned(LATER, *server, "dp_size=8"))
    release.values(tp_size=8, attn_dp_size=1, dp_size=1, enable_dp_attention=False)
    assert "REL012" in ids(planned(LATER, *server))


def test_what_is_not_known_of_an_estimate_is_no_reason_to_warn() -> None:
    plan = planned("engine.version=0.5.19", "gpu=h200", "model_path=org/unknown", "cuda_graph_max_bs_decode=64")
    assert not plan.is_exact
    assert "NOP001" not in ids(plan)


def test_a_step_names_its_place_and_what_decided(release: Any) -> None:
    release.values(tp_size=8, chunked_prefill_size=16384)
    change = Change("chunked_prefill_size", None, 16384, STEP)
    release.answer = Answer(True, release.answer.values, changes=(change,))
    (entry,) = planned(LATER, *SERVER).resolution.ledger
    assert entry.reason == "arg_groups/memory_hook.py:167: gpu_mem=183359.0"


def test_the_key_is_not_told_and_the_seed_only_where_it_was_set(release: Any) -> None:
    release.values(tp_size=8)
    plan = planned(LATER, *SERVER, "api_key=sekret")
    assert "sekret" not in str(release.asked)
    assert "--random-seed" not in release.asked[-1]
    assert plan.values["api_key"] is not None
    planned(LATER, *SERVER, "random_seed=7")
    assert release.asked[-1][release.asked[-1].index("--random-seed") + 1] == "7"


@pytest.mark.parametrize(
    ("words", "extra"),
    {
        "dcp_size=2": {"dcp_size": 2},
        "fp8_gemm_backend=cutlass": {"fp8_gemm_runner_backend": "cutlass"},
        "attention_backend=fa4": {"attention_backend": "fa4"},
    }.items(),
)
def test_arguments_of_the_release_are_typed_like_any_other(words: str, extra: Any, release: Any) -> None:
    release.values(tp_size=8, **extra)
    plan = planned(LATER, *SERVER, words)
    assert extra.items() <= plan.intent.items()
    assert [item.id for item in plan.findings if item.level == "error"] == []
    ((name, value),) = extra.items()
    assert release.asked[-1][-1] == str(value)
    assert plan.values[name] == value


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("engine.version=0.5.2", "dcp_size=2"), "dcp_size=2: SGLang 0.5.2 has no such argument", ""),
        ((LATER, "cuda_graph_max_bs=4"), "has no such argument", "cuda_graph_max_bs_decode=4"),
    ],
)
def test_what_the_release_does_not_take_is_refused(words: tuple[str, ...], message: str, hint: str | None) -> None:
    (finding,) = [item for item in planned(*SERVER, *words).findings if item.id == "VER004"]
    assert message in finding.message
    assert (hint or "") in (finding.hint or "")


def test_checks_of_0_5_2_are_silent_under_another_release(release: Any) -> None:
    release.values(tp_size=8)
    words = (*SERVER, "quantization=awq", SEED)
    assert "CFG002" in ids(planned(*words))
    assert "CFG002" not in ids(planned(LATER, *words))
    release.values(tp_size=16)
    assert "GPU001" in ids(planned(LATER, "gpu=b200", "model=deepseek_v3", "tp_size=16"))


def test_two_releases_differ_by_their_own_values() -> None:
    odd = "chunked_prefill_size=1234"  # of which no answer is recorded
    left, right = planned("engine.version=0.5.18", *SERVER, odd, SEED), planned(LATER, *SERVER, odd, SEED)
    found = {item.key: item for item in differences(left, right)}
    assert found["engine"].before == "sglang 0.5.18"
    assert not {"attention_backend", "mem_fraction_static"} & set(found)  # unknown in both
    assert all("own code" not in "".join(item.why) for item in found.values())


def test_a_lock_of_the_releases_own_values_needs_its_answer(
    release: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release.values(tp_size=8, mem_fraction_static=0.8)
    locked = planned(LATER, *SERVER, SEED)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(locked.to_json()))
    assert planned(f"lock={file}").server_id == locked.server_id
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: None)
    (finding,) = [item for item in refused(f"lock={file}") if item.id == "LCK014"]
    assert finding.message.startswith("whether the values are still those of SGLang 0.5.23 cannot be known")
    assert finding.hint == "sglang-hydra release fetch 0.5.23"


def test_a_lock_of_a_release_that_nobody_named_keeps_it(tmp_path: Path) -> None:
    first = planned("gpu=h200", "model=qwen3_5_397b", "tp_size=8", SEED)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(first.to_json()))
    again = planned(f"lock={file}")
    assert (again.engine.version, again.server_id) == (first.engine.version, first.server_id)


def test_code_that_a_model_brings_is_not_run_and_the_releases_class_stands_for_it(
    release: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    release.values(tp_size=8, trust_remote_code=True)
    told = []
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: told.append(case.models) or release.answer)
    plan = planned(LATER, *SERVER, "trust_remote_code=true")
    (finding,) = [item for item in plan.findings if item.id == "REL014"]
    assert "configuration_deepseek.DeepseekV3Config was not run" in finding.message
    content = told[0]["deepseek-ai/DeepSeek-V3"]
    assert "AutoConfig" not in content["auto_map"]
    assert content["architectures"] == ["DeepseekV3ForCausalLM"]
    planned(LATER, *SERVER)
    assert "AutoConfig" in json.dumps(told[-1])


def test_a_model_type_that_the_releases_transformers_lacks_is_named(release: Any) -> None:
    text = "ValueError: `qwen3_5` but Transformers does not recognize this architecture.\n\nYou can update it"
    release.answer = Answer(False, stage="post_init", error=text, by_library=True)
    plan = planned("engine.version=0.5.5", "gpu=h200", "model=qwen3_5_27b")
    assert {finding.id for finding in plan.findings if finding.level != "info"} == {"RUN015", "REL011"}
    assert any("its transformers has no model type qwen3_5" in finding.message for finding in plan.findings)
