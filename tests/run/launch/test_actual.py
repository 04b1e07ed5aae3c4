"""A running server's own account against its plan: what differs, and the likely reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.planning.comparing.actual import Comparison, compare, sentence
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch.as_planned import mismatch
from sglang_hydra.run.launch.listening import OURS, UNSEEN, Owner
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from tests.commands import must_follow
from tests.plans import H200, composer, planned, requests, without_engines

LATER = Path(__file__).parents[2] / "data" / "actual" / "server_info_0_5_23.json"
ON_CPU = (
    "gpu=cpu",
    "model=tiny",
    "attention_backend=torch_native",
    "sampling_backend=pytorch",
    "disable_cuda_graph=true",
)
H100 = GpuFacts("h100", "nvidia", "cuda", 81559, (9, 0), 8, flashinfer=True)
KEY = "sk-correct-horse"


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


def info_of(plan: Plan, **other: Any) -> dict[str, Any]:
    """What a server that runs exactly this plan answers, as JSON brings it, and then something else."""
    values = {name: plain(value) for name, value in plan.values.items()}
    if plan.secrets:
        values["api_key"] = plan.secrets["api_key"]
    tokens = plan.fit.kv_tokens if plan.fit else 8192
    answer = {**values, "version": "0.5.2", "max_total_num_tokens": tokens, "status": "ready", "internal_states": [{}]}
    return dict(json.loads(json.dumps({**answer, **other})))


def only(compared: Comparison) -> Any:
    (difference,) = compared.differences
    return difference


@pytest.mark.parametrize(
    "overrides",
    [
        H200,
        ON_CPU,
        (*H200, f"api_key={KEY}"),
        (*H200, "lora_paths=['a=/x',/y]", "max_lora_rank=8", "lora_target_modules=[q_proj,k_proj]"),
        (*H200, "schedule_conservativeness=2", "enable_metrics=true", "bucket_time_to_first_token=[0.1,1]"),
        ("gpu=h200", "model=deepseek_v3", "tp_size=8", "dp_size=8", "enable_dp_attention=true"),
    ],
    ids=str,
)
def test_a_server_that_runs_as_planned_has_no_difference(overrides: tuple[str, ...]) -> None:
    plan = planned(*overrides)
    compared = compare(plan, info_of(plan))
    assert compared.differences == ()
    assert compared.findings == ()
    assert compared.summary == "210 of 210 as planned"


def test_any_seed_is_as_planned_where_the_start_draws_it() -> None:
    plan = make_plan(composer(), requests(*H200), env={})
    assert compare(plan, info_of(plan, random_seed=7)).summary == "210 of 210 as planned"
    (difference,) = compare(planned(*H200, "random_seed=8"), info_of(plan, random_seed=7)).differences
    assert difference.key == "random_seed"


def test_what_a_construction_draws_and_the_order_of_a_set_are_no_differences() -> None:
    plan = planned(*H200, "lora_paths=['a=/x']", "max_lora_rank=8", "lora_target_modules=[v_proj,k_proj,q_proj]")
    assert plan.values["lora_target_modules"] == {"v_proj", "k_proj", "q_proj"}
    info = info_of(plan, lora_target_modules=["v_proj", "q_proj", "k_proj"])
    info["lora_paths"][0]["lora_id"] = "3f1c"
    assert compare(plan, info).differences == ()


REASONS: dict[str, tuple[tuple[str, ...], dict[str, Any], GpuFacts | None, str]] = {
    "another GPU, probed": (H200, {"mem_fraction_static": 0.874}, H100, "GPU has 81559 MiB, the plan is for 143771"),
    "another seed": (H200, {"random_seed": 7}, None, "drawn when the server started"),
    "another port": (H200, {"nccl_port": 31000}, None, "drawn when the server started"),
    "a rule's value": (H200, {"grammar_backend": "outlines"}, None, "KER007 planned it"),
    "a set value": ((*H200, "stream_interval=4"), {"stream_interval": 1}, None, "the plan sets it: the server"),
    "a default": (H200, {"watchdog_timeout": 5.0}, None, "none of our rules gives this value"),
}


@pytest.mark.parametrize("case", REASONS)
def test_a_difference_says_what_was_planned_what_is_there_and_why(case: str) -> None:
    overrides, changed, machine, why = REASONS[case]
    plan = planned(*overrides)
    compared = compare(plan, info_of(plan, **changed), machine)
    difference = only(compared)
    assert {difference.key: difference.after} == changed
    assert difference.before == plain(plan.values[difference.key])
    assert why in difference.why[1]
    assert compared.summary == "209 of 210 as planned"
    (finding,) = compared.findings
    assert (finding.id, finding.level, finding.fields) == ("ACT001", "warning", (difference.key,))


def test_a_model_that_the_plan_did_not_know_is_the_likely_reason() -> None:
    plan = planned("gpu=h200", "model_path=someone/unheard-of", env={"HF_HUB_OFFLINE": "1"})
    assert not plan.model.known
    compared = compare(plan, info_of(plan, max_total_num_tokens=7, attention_backend="fa3"))
    assert "knew nothing of the model's config.json" in only(compared).why[1]


def test_a_later_release_is_compared_over_what_both_have() -> None:
    """The answer of a real server of 0.5.23, which was started for this plan."""
    info = json.loads(LATER.read_text())
    plan = planned(*ON_CPU, "max_total_tokens=8192", "disable_radix_cache=true", "port=31523", "random_seed=284978268",
                   "model_path=tiny", "served_model_name=tiny")  # fmt: skip
    compared = compare(plan, info)
    assert compared.summary == "174 of 183 as planned; 27 not in 0.5.23"
    reasons = {item.key: item.why[1] for item in compared.differences}
    assert reasons["lora_backend"] == "its default is csgmv since 0.5.4.post2; it was triton"
    assert reasons["mem_fraction_static"].startswith("MEM002 is 0.5.2's rule")
    assert set(compared.absent) == {name for name in FIELDS if name not in info}
    levels = {finding.id: finding.level for finding in compared.findings}
    assert levels == {"ACT004": "warning", "ACT001": "info"}


def test_a_key_is_compared_and_never_shown() -> None:
    plan = planned(*H200, f"api_key={KEY}")
    assert compare(plan, info_of(plan, api_key="another")).differences == ()
    lost = compare(plan, info_of(plan, api_key=None, tokenizer_mode=f"slow {KEY}"))
    record = json.dumps(lost.to_json(plan))
    assert KEY not in record
    assert [item.key for item in lost.differences] == ["tokenizer_mode", "api_key"]
    assert (lost.differences[1].before, lost.differences[1].after) == ("***", None)
    must_follow(json.loads(record), "actual")
    open_one = planned(*H200)
    found = only(compare(open_one, info_of(open_one, api_key="sk-of-someone")))
    assert (found.before, found.after) == (None, "***")


KV: dict[str, tuple[tuple[str, ...], float, dict[str, Any], bool, str]] = {
    "as foreseen": (H200, 1.0, {}, True, "as predicted"),
    "within the error": (H200, 0.999, {}, True, "as predicted"),
    "too few": (H200, 0.5, {}, False, "something else may hold"),
    "too many": (H200, 1.5, {}, False, "more memory was free"),
    "another fraction": (H200, 0.5, {"mem_fraction_static": 0.6}, False, "mem_fraction_static is 0.6 and not"),
    "heavier weights": (
        H200, 0.7, {"internal_states": [{"memory_usage": {"weight": 40.0}}]}, False, "the weights take 40.0 GiB",
    ),
    "held down": ((*H200, "max_total_tokens=5000"), 1.0, {}, True, "as predicted: 5,000"),
    "held down and still fewer": ((*H200, "max_total_tokens=5000"), 0.5, {}, False, "something else may hold"),
}  # fmt: skip


@pytest.mark.parametrize("case", KV)
def test_the_kv_cache_is_held_against_the_fit_and_its_error(case: str) -> None:
    overrides, share, changed, good, said = KV[case]
    plan = planned(*overrides)
    assert plan.fit is not None
    tokens = round((plan.fit.kv_tokens or 0) * share)
    compared = compare(plan, info_of(plan, max_total_num_tokens=tokens, **changed))
    assert compared.kv is not None
    assert compared.kv.as_planned is good
    text = compared.kv.finding.message if compared.kv.finding else compared.kv.text
    assert said in text
    assert ("ACT002" in {finding.id for finding in compared.findings}) is not good


def test_without_a_fit_the_kv_cache_is_only_named() -> None:
    plan = planned(*ON_CPU)
    compared = compare(plan, info_of(plan))
    assert compared.kv is not None
    assert compared.kv.text == "KV cache: 8,192 tokens; there is no memory fit on the CPU"
    assert compared.findings == ()
    unknown = planned("gpu=h200", "model_path=someone/unheard-of", env={"HF_HUB_OFFLINE": "1"})
    kv = compare(unknown, info_of(unknown, max_total_num_tokens=9)).kv
    assert kv is not None
    assert kv.as_planned is None


ODD_ANSWERS: tuple[Any, ...] = ({}, {"error": "no"}, {"status": "ready"}, [], "model_path", None)


@pytest.mark.parametrize("answer", ODD_ANSWERS, ids=str)
def test_what_is_no_account_of_arguments_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="no arguments of a server"):
        compare(planned(*H200), answer)


@pytest.mark.parametrize("tokens", [None, True, "many", 1.5])
def test_a_broken_number_of_tokens_is_no_number(tokens: Any) -> None:
    plan = planned(*H200)
    assert compare(plan, info_of(plan, max_total_num_tokens=tokens)).kv is None


@pytest.mark.parametrize("states", [None, [], [None], [{"memory_usage": 3}], [{"memory_usage": {"weight": "x"}}], {}])
def test_broken_internal_states_do_no_harm(states: Any) -> None:
    plan = planned(*H200)
    assert compare(plan, info_of(plan, max_total_num_tokens=5, internal_states=states)).kv is not None


def test_another_release_than_planned_is_named() -> None:
    plan = planned(*H200)
    compared = compare(plan, info_of(plan, version="0.5.3"))
    assert [(finding.id, finding.hint) for finding in compared.findings] == [("ACT004", "engine.version=0.5.3")]
    strange = compare(plan, info_of(plan, version="\x1b[2J"))
    assert "\x1b" not in strange.summary
    unnamed: Mapping[str, Any] = {key: value for key, value in info_of(plan).items() if key != "version"}
    assert compare(plan, unnamed).findings == ()


def test_the_record_follows_its_schema_and_holds_every_difference() -> None:
    plan = planned(*H200)
    machine = replace(H100, memory_mib=40000, compute_capability=(8, 0))
    compared = compare(plan, info_of(plan, chunked_prefill_size=4096, max_total_num_tokens=1), machine)
    record = json.loads(json.dumps(compared.to_json(plan), allow_nan=False))
    must_follow(record, "actual")
    assert record["differences"][0]["field"] == "chunked_prefill_size"
    assert record["kv_tokens"]["as_planned"] is False


# What a server has in another way, and whether it is another server for that: of 0.5.2, and of a later release.
FAILING: dict[str, tuple[tuple[str, ...], dict[str, Any], bool, bool]] = {
    "nothing": ((), {}, False, False),
    "another model": ((), {"model_path": "other"}, True, True),
    "what was passed": (("max_running_requests=8",), {"max_running_requests": 7}, True, True),
    "a default": ((), {"max_running_requests": 7}, True, False),
    "what a rule made": ((), {"grammar_backend": "outlines"}, True, False),
    "a seed, which is always passed": ((), {"random_seed": 7}, True, True),
    "a port that SGLang draws": ((), {"nccl_port": 31000}, False, False),
    "what follows from the model": ((), {"tokenizer_path": "other"}, False, False),
    "a key that nobody gave it": ((), {"api_key": "sk-1"}, True, False),
}


@pytest.mark.parametrize("case", FAILING)
def test_which_differences_make_it_another_server(case: str) -> None:
    overrides, changed, fails, fails_later = FAILING[case]
    plan = planned(*H200, *overrides)
    found = mismatch(plan, compare(plan, info_of(plan, **changed)), Owner(OURS))
    assert (found is not None) == fails
    for item in compare(plan, info_of(plan, **changed)).differences if found else ():
        assert sentence(item) in found.message  # type: ignore[union-attr]
    exact = planned(*H200, "engine.version=0.5.23", *overrides)
    for later in (exact, planned(*H200, "engine.version=0.5.23", "log_requests_level=1", *overrides)):
        answer = {**info_of(later, **changed), "version": "0.5.23"}
        expected = fails if later.is_exact else fails_later
        assert (mismatch(later, compare(later, answer), Owner(OURS)) is not None) == expected
    assert not later.is_exact
    forced = planned(*H200, *overrides, "launch.force=true")
    assert mismatch(forced, compare(forced, info_of(forced, **changed)), Owner(OURS)) is None


def test_a_release_that_changes_what_it_was_passed_is_asked_before_its_server_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = planned(*H200, "engine.version=0.5.23", "page_size=16")
    compared = compare(plan, {**info_of(plan, page_size=64), "version": "0.5.23"})
    monkeypatch.setattr("sglang_hydra.run.launch.as_planned._made_by_release", lambda plan: compared.differences)
    assert mismatch(plan, compared, Owner(OURS)) is None
    monkeypatch.setattr("sglang_hydra.run.launch.as_planned._made_by_release", lambda plan: ())
    assert mismatch(plan, compared, Owner(OURS)) is not None


def test_where_nothing_else_identifies_it_a_server_has_to_name_what_it_was_passed() -> None:
    plan = planned(*H200, "max_running_requests=8")
    answer = info_of(plan)
    del answer["max_running_requests"]
    compared = compare(plan, answer)
    assert mismatch(plan, compared, Owner(OURS)) is None
    found = mismatch(plan, compared, Owner(UNSEEN, "no /proc"))
    assert found is not None
    assert "max_running_requests: planned 8, the server has null: it reports no value" in found.message


@pytest.mark.parametrize(("owner", "fails"), [(OURS, False), (UNSEEN, True)])
def test_a_server_that_cannot_be_compared_must_at_least_own_its_port(owner: str, fails: bool) -> None:
    asked = Finding("warning", "ACT003", "it did not answer", ("engine",))
    found = mismatch(planned(*H200), asked, Owner(owner, "no /proc"))
    assert (found is not None) == fails
    assert found is None or ("no /proc" in found.message and "it did not answer" in found.message)
