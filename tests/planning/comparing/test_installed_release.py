"""What an installed SGLang makes of plans, and what is said where it cannot be asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.facts.trust import grant
from sglang_hydra.planning.comparing import installed as asking
from sglang_hydra.planning.comparing.actual import Comparison
from sglang_hydra.planning.comparing.installed import ask_about, case_of
from sglang_hydra.releases import process
from sglang_hydra.releases.process import end_children
from sglang_hydra.rules.answer import Answer
from tests.plans import H200, planned, without_engines
from tests.releases.environments import environment

LATER = "engine.version=0.5.23"
SEED = "random_seed=42"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    without_engines(monkeypatch)
    yield
    end_children()


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment whose SGLang is 0.5.23 by name."""
    return str(environment(tmp_path_factory.mktemp("later"), "0.5.23"))


def asked(venv: str, *overrides: str) -> tuple[Answer, Comparison | None]:
    grant(f"{venv}/bin/python")  # as a launch does
    return ask_about(planned(*overrides), f"{venv}/bin/python")


def test_a_later_release_answers_with_its_own_values_under_the_plans_facts(venv: str) -> None:
    overrides = (*H200, LATER, SEED, "tp_size=2", "engine.env.SGLANG_WATCHDOG=77")
    values = asked(venv, *overrides)[0].values
    assert values["model_path"] == values["tokenizer_path"] == "Qwen/Qwen3-8B"
    assert values["served_model_name"] == "Qwen3ForCausalLM"
    assert (values["device"], values["page_size"], values["mem_fraction_static"]) == ("cuda", 9, 0.143771)
    assert (values["tp_size"], values["watchdog_timeout"]) == (2, 77.0)
    assert values["new_in_this_release"] == "13.0"
    assert values["kinds"] == ["a", "b"]


def test_differences_are_named_with_their_reasons(venv: str) -> None:
    compared = asked(venv, *H200, LATER, SEED)[1]
    assert compared is not None
    differing = {item.key: (item.before, item.after, item.why[1]) for item in compared.differences}
    assert differing["mem_fraction_static"] == (
        0.903,
        0.143771,
        "0.5.23's own code planned it (arg_groups/memory_hook.py:342, handle_gpu_memory_settings), "
        "but the server decided otherwise",
    )
    assert "random_seed" not in differing
    assert compared.summary.endswith("not in 0.5.23")
    assert "tp_size" not in compared.absent


def test_every_case_is_asked_as_if_it_were_alone(venv: str) -> None:
    """GPUs of one kind share a process; nothing that one case sets reaches the next."""
    gpus = ("h200", "a100_40gb", "h100", "h200", "cpu")
    answers = [asked(venv, f"gpu={gpu}", "model=qwen3_8b", LATER, SEED)[0] for gpu in gpus]
    fractions = [answer.values["mem_fraction_static"] for answer in answers]
    assert {answer.values["left"] for answer in answers} == {"1"}
    assert fractions == [0.143771, 0.04096, 0.081559, 0.143771, 0.0]


REFUSALS = {
    "argparse": (("stream_interval=3",), "argparse", "invalid choice: 3"),
    "post_init": (("max_running_requests=666",), "post_init", "RuntimeError: beast (server_args.py:"),
    "check": (("tp_size=7",), "check", "ValueError: 7 is odd"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_told_in_the_releases_own_words(case: str, venv: str) -> None:
    overrides, stage, error = REFUSALS[case]
    answer, compared = asked(venv, *H200, LATER, SEED, *overrides)
    assert (answer.ok, answer.stage, compared) == (False, stage, None)
    assert error in (answer.error or "")


UNASKED = {
    "it died": ("max_running_requests=667", "it ended"),
    "it lacks a module": ("max_running_requests=668", "what an inert name gives: ModuleNotFoundError"),
    "it asked a kernel": ("max_running_requests=669", "unanswered question: sgl_kernel.is_fast() (server_args.py:"),
}


@pytest.mark.parametrize("case", UNASKED)
def test_what_could_not_be_asked_says_why(case: str, venv: str) -> None:
    override, why = UNASKED[case]
    answer, compared = asked(venv, *H200, LATER, override)
    assert (answer.ok, compared) == (None, None)
    assert why in (answer.unanswered or "")


def test_one_that_dies_takes_no_other_with_it(venv: str) -> None:
    answers = [asked(venv, *H200, LATER, SEED, f"max_running_requests={number}")[0] for number in (1, 667, 2)]
    assert [answer.ok for answer in answers] == [True, None, True]


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
    answer, _ = asked(str(folder), *H200, f"engine.version={version}", SEED)
    assert answer.ok is None
    assert why in (answer.unanswered or "")


def test_one_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"sglang/srt/server_args.py": "import time; time.sleep(60)"}
    folder = environment(tmp_path / "venv", "0.5.23", files)
    monkeypatch.setattr(process, "START_S", 1.0)
    monkeypatch.setattr(process, "_MARGIN_S", 0.0)
    assert "no answer within 1 s" in (asked(str(folder), *H200, LATER, SEED)[0].unanswered or "")


@pytest.mark.parametrize("python", ["/nowhere", None, "nonsense-program"])
def test_where_there_is_no_sglang_nothing_is_asked(python: str | None) -> None:
    answer, compared = ask_about(planned(*H200, LATER, SEED), python)
    assert (answer.ok, compared) == (None, None)
    assert "no SGLang can be asked" in (answer.unanswered or "")


def test_a_key_is_neither_told_nor_a_difference(venv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = asking.ask_installed

    def spy(python: str, version: str, cases: Any) -> Any:
        seen.append(json.dumps([case.to_json() for case in cases]))
        seen.append(json.dumps([answer.values for answer in real(python, version, cases)]))
        return real(python, version, cases)

    monkeypatch.setattr(asking, "ask_installed", spy)
    monkeypatch.setenv("HF_TOKEN", "hf_secret_of_mine")
    _, compared = asked(venv, *H200, LATER, SEED, "api_key=sk-hush", "engine.env.SGLANG_TOKEN=hush")
    assert compared is not None
    assert len(seen) == 2
    assert "api_key" not in {item.key for item in compared.differences}
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
    assert asked(venv, *words)[0].ok
    told = case_of(planned(*words, "trust_remote_code=true"), "0.5.23").models[str(folder)]
    assert told["of_the_file"]


def test_what_its_transformers_refuse_is_told_as_theirs(tmp_path: Path) -> None:
    files = {
        "transformers/__init__.py": "def read(path): raise KeyError(path)",
        "sglang/srt/server_args.py": "import transformers\ndef prepare_server_args(argv):\n    transformers.read('x')",
    }
    venv = str(environment(tmp_path / "venv", "0.5.23", files))
    answer, _ = asked(venv, *H200, LATER, SEED)
    assert (answer.ok, answer.by_library, answer.error) == (False, True, "KeyError: 'x' (server_args.py:3)")


def test_an_environment_that_only_a_file_names_is_not_asked(venv: str) -> None:
    answer, _ = ask_about(planned(*H200, LATER, SEED), f"{venv}/bin/python3")
    assert answer.ok is None
