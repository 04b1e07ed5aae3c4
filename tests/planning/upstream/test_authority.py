"""check --against: what an installed SGLang makes of plans, and what is said where it cannot be asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.upstream import ask as asking
from sglang_hydra.planning.upstream.ask import Authority, CannotAsk, ask_about, case_of, find_authority
from sglang_hydra.planning.upstream.verdict import Verdict, verdicts_on
from sglang_hydra.schemas import schema_of
from sglang_hydra.text.errors import MachineError
from sglang_hydra.upstream import process
from sglang_hydra.upstream.process import end_children
from tests.commands import Run, runner
from tests.planning.upstream.environments import environment
from tests.plans import H200, planned, without_engines

LATER = "engine.version=0.5.23"
SEED = "random_seed=42"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    without_engines(monkeypatch)
    yield
    end_children()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment whose SGLang is 0.5.23 by name."""
    return str(environment(tmp_path_factory.mktemp("later"), "0.5.23"))


def verdict(venv: str, *overrides: str) -> Verdict:
    (made,) = verdicts_on(find_authority(venv), [planned(*overrides)])
    return made


def said(plan: Plan, made: Verdict) -> dict[str, str]:
    return {finding.id: finding.level for finding in made.findings(plan)}


def test_a_later_release_answers_with_its_own_values_under_the_plans_facts(venv: str) -> None:
    overrides = (*H200, LATER, SEED, "tp_size=2", "engine.env.SGLANG_WATCHDOG=77")
    (answer,) = ask_about(find_authority(venv), [planned(*overrides)])
    assert not isinstance(answer, CannotAsk)
    values = answer["values"]
    assert values["model_path"] == values["tokenizer_path"] == "Qwen/Qwen3-8B"
    assert values["served_model_name"] == "Qwen3ForCausalLM"
    assert (values["device"], values["page_size"], values["mem_fraction_static"]) == ("cuda", 9, 0.143771)
    assert (values["tp_size"], values["watchdog_timeout"]) == (2, 77.0)
    assert values["new_in_this_release"] == "13.0"
    assert values["kinds"] == ["a", "b"]
    assert not answer["read"]


def test_differences_are_named_with_their_reasons(venv: str) -> None:
    made = verdict(venv, *H200, LATER, SEED)
    assert made.ok
    differing = {item.field: (item.planned, item.actual, item.reason) for item in made.differences}
    assert differing["mem_fraction_static"] == (
        0.911,
        0.143771,
        "MEM001 is 0.5.2's rule, and 0.5.23 has one of its own",
    )
    assert "random_seed" not in differing
    assert made.compared is not None
    assert made.compared.summary.endswith("not in 0.5.23")
    assert "tp_size" not in made.compared.absent


def test_every_case_is_asked_as_if_it_were_alone(venv: str) -> None:
    """GPUs of one kind share a process; nothing that one case sets reaches the next."""
    authority = find_authority(venv)
    plans = [
        planned(f"gpu={gpu}", "model=qwen3_8b", LATER, SEED) for gpu in ("h200", "a100_40gb", "h100", "h200", "cpu")
    ]
    answers = ask_about(authority, plans)
    fractions = []
    for answer in answers:
        assert not isinstance(answer, CannotAsk)
        fractions.append(answer["values"]["mem_fraction_static"])
        assert answer["values"]["left"] == "1"
    assert fractions == [0.143771, 0.04096, 0.081559, 0.143771, 0.0]


REFUSALS = {
    "argparse": (("stream_interval=3",), "argparse", "invalid choice: 3"),
    "post_init": (("max_running_requests=666",), "post_init", "RuntimeError: beast (server_args.py:"),
    "check": (("tp_size=7",), "check", "ValueError: 7 is odd"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_told_in_the_releases_own_words(case: str, venv: str) -> None:
    overrides, stage, error = REFUSALS[case]
    plan = planned(*H200, LATER, SEED, *overrides)
    made = verdict(venv, *H200, LATER, SEED, *overrides)
    assert (made.ok, made.stage) == (False, stage)
    assert error in (made.error or "")
    assert said(plan, made)["AUT003"] == "error"
    (finding,) = [item for item in made.findings(plan) if item.id == "AUT003"]
    assert not finding.ours
    jsonschema.validate({**plan.to_json(), "authority": made.to_json()}, schema_of("plan"))


UNASKED = {
    "it died": (("max_running_requests=667",), "it ended"),
    "it lacks a module": (("max_running_requests=668",), "what an inert name gives: ModuleNotFoundError"),
    "it asked a kernel": (("max_running_requests=669",), "unanswered question: sgl_kernel.is_fast() (server_args.py:"),
    "an unknown model": (("model_path=someone/unheard-of",), "config.json is not known"),
    "another engine": (("engine=transformers", "gpu=cpu"), "engine=transformers"),
    "a flag that is gone": (("torchao_config=int4",), "does not take the arguments"),
    "an option without a value": (("cuda_graph_bs=[]",), "takes one value or more"),
}


@pytest.mark.parametrize("case", UNASKED)
def test_what_could_not_be_asked_says_why_and_keeps_our_values(case: str, venv: str) -> None:
    overrides, why = UNASKED[case]
    words = (*H200, *overrides) if "engine=transformers" in overrides else (*H200, LATER, *overrides)
    plan = planned(*words)
    made = verdict(venv, *words)
    assert made.ok is None
    assert why in (made.why or "")
    assert said(plan, made)["AUT002"] == "warning"
    assert made.differences == ()


def test_no_model_is_no_question(venv: str) -> None:
    assert verdict(venv, "gpu=h200", LATER).why == "the plan names no model"


def test_one_that_dies_takes_no_other_with_it(venv: str) -> None:
    plans = [planned(*H200, LATER, SEED, f"max_running_requests={number}") for number in (1, 667, 2)]
    answers = ask_about(find_authority(venv), plans)
    assert [isinstance(answer, CannotAsk) for answer in answers] == [False, True, False]


ENVIRONMENTS: dict[str, tuple[str, dict[str, str], str]] = {
    "another layout": (
        "0.5.2",
        {"sglang/srt/server_args.py": "X = 1"},
        "module 'sglang.srt.server_args' has no attribute 'prepare_server_args'",
    ),
    "nothing in it": ("0.5.2", {}, "it cannot be imported: ModuleNotFoundError: No module named 'sglang.srt.server_"),
    "it fails": (
        "0.5.23",
        {"sglang/srt/server_args.py": "1 / 0"},
        "it cannot be imported: ZeroDivisionError",
    ),
    "it dies": ("0.5.23", {"sglang/srt/server_args.py": "import os; os._exit(3)"}, "it ended"),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_an_environment_that_cannot_answer_says_why(case: str, tmp_path: Path) -> None:
    version, files, why = ENVIRONMENTS[case]
    folder = environment(tmp_path / "venv", version, files)
    made = verdict(str(folder), *H200, f"engine.version={version}", SEED)
    assert made.ok is None
    assert why in (made.why or "")


def test_one_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"sglang/srt/server_args.py": "import time; time.sleep(60)"}
    folder = environment(tmp_path / "venv", "0.5.23", files)
    monkeypatch.setattr(process, "START_S", 1.0)
    monkeypatch.setattr(process, "_MARGIN_S", 0.0)
    assert "no answer within 1 s" in (verdict(str(folder), *H200, LATER, SEED).why or "")


@pytest.mark.parametrize("where", ["/nowhere", "installed", "EMPTY", "nonsense-program"])
def test_where_there_is_no_sglang_the_machine_cannot(where: str, tmp_path: Path) -> None:
    if where == "EMPTY":
        where = str(tmp_path)
    with pytest.raises(MachineError) as failure:
        find_authority(where)
    assert failure.value.findings[0].id == "AUT001"
    assert "--against VENV" in (failure.value.findings[0].hint or "")


def test_an_environment_its_python_and_engine_python_name_the_same(venv: str) -> None:
    python = f"{venv}/bin/python"
    named = [find_authority(venv), find_authority(python), find_authority("installed", python)]
    assert {(one.python, one.version) for one in named} == {(python, "0.5.23")}


def test_check_plans_for_the_release_that_it_asks(run: Run, venv: str) -> None:
    printed = run("check", "--against", venv, *H200, SEED, "cuda_graph_max_bs=8")
    # This small release has no such flag, and says so itself.
    assert printed.code == 2
    assert "unrecognized arguments: --cuda-graph-max-bs-decode 8" in " ".join(printed.out.split())
    printed = run("check", f"--against={venv}", *H200, SEED)
    assert printed.code == 0
    assert f"SGLang 0.5.23 ({venv}) accepts it" in printed.out
    assert "mem_fraction_static" in printed.out


def test_the_answer_is_saved_in_the_plan_and_in_the_check(run: Run, venv: str) -> None:
    plan = json.loads(run("plan", "--json", "--against", venv, *H200, SEED).out)
    jsonschema.validate(plan, schema_of("plan"))
    assert (plan["authority"]["version"], plan["authority"]["ok"]) == ("0.5.23", True)
    assert plan["engine"]["version"] == "0.5.23"
    checked = json.loads(run("check", "--json", "--against", venv, *H200, SEED).out)
    jsonschema.validate(checked, schema_of("check"))
    assert checked["results"][0]["authority"] == plan["authority"]
    assert json.loads(run("plan", "--json", *H200).out)["authority"] is None


def test_files_and_folders_are_asked_about_one_by_one(run: Run, venv: str, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("gpu: h200\nmodel: qwen3_8b\nrandom_seed: 1\n")
    (tmp_path / "odd.yaml").write_text("gpu: h200\nmodel: qwen3_8b\ntp_size: 7\nrandom_seed: 1\n")
    (tmp_path / "typo.yaml").write_text("gpu: h200\ntpsize: 7\n")
    printed = run("check", "--json", "--against", venv, str(tmp_path))
    assert printed.code == 2
    results = {Path(item["name"]).name: item for item in json.loads(printed.out)["results"]}
    verdicts = {name: item.get("authority", {}).get("ok") for name, item in results.items()}
    assert verdicts == {"good.yaml": True, "odd.yaml": False, "typo.yaml": None}


def test_its_word_counts_over_0_5_2s_rules(run: Run, venv: str) -> None:
    """0.5.2 refuses these sizes; this release does not look at them."""
    refused = [*H200, SEED, "max_running_requests=3", "tp_size=3", "nnodes=2", "dist_init_addr=10.0.0.1:5000"]
    assert run("check", *refused).code == 2
    made = planned(*refused, LATER)
    answered = Verdict(find_authority(venv), True)
    ours = {item.id for item in made.resolution.findings if item.level == "error"}
    assert [item.id for item in made.findings if item.level == "warning" and item.id in ours]
    assert not [item for item in answered.findings(made) if item.level == "error" and item.id in ours]
    assert any(item.message.endswith("(a rule of 0.5.2; 0.5.23 accepts it)") for item in answered.findings(made))


@pytest.mark.parametrize(
    "words",
    [["fit", *H200], ["serve", *H200], ["check", "--base", "main", "x.yaml"], ["check", "-m", "tp_size=1,2"]],
    ids=str,
)
def test_it_goes_with_check_and_plan_alone(words: list[str], run: Run, venv: str) -> None:
    printed = run(words[0], "--against", venv, *words[1:])
    assert printed.code == 2
    assert "AUT005" in printed.err


def test_a_key_is_neither_told_nor_a_difference(venv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = asking.ask_installed

    def spy(python: str, version: str, cases: Any) -> Any:
        seen.append(json.dumps([case.to_json() for case in cases]))
        seen.append(json.dumps([answer.values for answer in real(python, version, cases)]))
        return real(python, version, cases)

    monkeypatch.setattr(asking, "ask_installed", spy)
    monkeypatch.setenv("HF_TOKEN", "hf_secret_of_mine")
    made = verdict(venv, *H200, LATER, SEED, "api_key=sk-hush", "engine.env.SGLANG_TOKEN=hush")
    assert made.ok
    assert len(seen) == 2
    assert "api_key" not in {item.field for item in made.differences}
    assert "hush" not in "".join(seen)
    assert "HF_HUB_OFFLINE" in seen[1]
    assert "HF_TOKEN" not in seen[1]


def test_a_folder_is_read_by_the_release_itself(venv: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "of_the_file": True}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "other.json").write_text("[1]", encoding="utf-8")
    words = ("gpu=h200", f"model_path={folder}", LATER, SEED)
    assert case_of(planned(*words), "0.5.23").models == {
        str(folder): {"files": {"config.json": json.dumps(config), "other.json": "[1]"}}
    }
    made = verdict(venv, *words)
    assert made.ok
    assert f"it read {folder}/config.json itself, and was given the plan's facts of h200" in made.text
    told = case_of(planned(*words, "trust_remote_code=true"), "0.5.23").models[str(folder)]
    assert told["of_the_file"]
    assert "it was given the plan's facts of h200" in verdict(venv, *words, "trust_remote_code=true").text


def test_what_transformers_refuses_is_no_word_on_a_model_that_it_was_told_of(tmp_path: Path) -> None:
    files = {
        "transformers/__init__.py": "def read(path): raise KeyError(path)",
        "sglang/srt/server_args.py": "import transformers\ndef prepare_server_args(argv):\n    transformers.read('x')",
    }
    venv = str(environment(tmp_path / "venv", "0.5.23", files))
    made = verdict(venv, *H200, LATER, SEED)
    assert made.ok is None
    assert "the model's facts are not all that it reads of a model: KeyError: 'x'" in (made.why or "")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}')
    made = verdict(venv, "gpu=h200", f"model_path={tmp_path}/mine", LATER, SEED)
    assert (made.ok, made.error) == (False, "KeyError: 'x' (server_args.py:3)")


def test_an_environment_that_only_a_file_names_is_not_asked(venv: str) -> None:
    plan = planned(*H200, LATER, SEED)
    (answer,) = ask_about(Authority(f"{venv}/bin/python3", "0.5.23", "x"), [plan])
    assert str(answer) == f"a file names {venv}/bin/python3, and nobody typed it"
