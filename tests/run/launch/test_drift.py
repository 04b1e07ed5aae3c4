"""``diff PLAN URL...``: which fields a server that runs holds otherwise than planned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Run, runner, valid
from tests.plans import planned
from tests.run.launch.test_server_info import answering, info_of, serving

WORDS = "gpu=h200 model=qwen3_8b max_running_requests=256 random_seed=7 engine.version=0.5.2 engine=sglang"
KEY = "sk-correct-horse"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


def test_a_changed_field_is_named_and_where_it_listens_is_no_drift(run: Run) -> None:
    plan = planned(*WORDS.split())
    same, other = info_of(plan, host="0.0.0.0", port=31000), info_of(plan, max_running_requests=128)
    with serving(answering(same)) as (first, asked), serving(answering(other)) as (second, _):
        words = [WORDS, f"http://127.0.0.1:{first}", f"http://127.0.0.1:{second}"]
        record = valid("drift", run("diff", "--json", *words).out)
        shown = run("diff", "--exit-code", *words)
        alone = run("diff", "--exit-code", *words[:2])
    assert [server["as_planned"] for server in record["servers"]] == [True, False]
    (item,) = record["servers"][1]["differences"]
    assert (item["field"], item["planned"], item["actual"]) == ("max_running_requests", 256, 128)
    assert shown.code == 2
    assert "1 field not as planned" in shown.out
    assert (alone.code, record["as_planned"]) == (0, False)
    assert {page for page, _ in asked} <= {"/get_server_info", "/server_info"}


def test_saved_answers_are_compared_too(run: Run, tmp_path: Path) -> None:
    info = {**info_of(planned(*WORDS.split()), max_running_requests=64), "internal_states": []}
    (tmp_path / "a.json").write_text(json.dumps(info))
    done = run("diff", "--exit-code", WORDS, "a.json")
    assert done.code == 2
    assert "256 -> 64" in done.out


def test_another_release_is_not_as_planned(run: Run, tmp_path: Path) -> None:
    info = {**info_of(planned(*WORDS.split())), "internal_states": [], "version": "0.5.3"}
    (tmp_path / "a.json").write_text(json.dumps(info))
    assert run("diff", "--exit-code", WORDS, "a.json").code == 2


def test_a_server_that_reports_next_to_nothing_is_not_as_planned(run: Run) -> None:
    info = info_of(planned(*WORDS.split()))
    few = {name: info[name] for name in ("model_path", "version", "tp_size")}
    with serving(answering(few)) as (port, _):
        words = ["diff", "--exit-code", WORDS, f"http://127.0.0.1:{port}"]
        shown, record = run(*words), valid("drift", run(*words, "--json").out)
    assert shown.code == 3
    assert "not known: it reports 2 of 2" in shown.out  # model_path and tp_size; 210 arguments and what a release adds
    assert (record["as_planned"], record["servers"][0]["as_planned"]) == (False, False)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda info: dict(list(info.items())[: len(info) // 2]), 3),
        (lambda info: {**dict.fromkeys(info, "<redacted>"), "model_path": info["model_path"]}, 2),
        (lambda info: {**info, "tp_size": "1"}, 2),
        (lambda info: {**info, "max_running_requests": [256]}, 2),
        (lambda info: {**info, "version": 5, "internal_states": 5, "max_total_num_tokens": "x"}, 0),
        (lambda info: {**info, "mem_fraction_static": None}, 2),
        (lambda info: [info], 3),
    ],
    ids=["half", "redacted", "text for a number", "a list", "odd facts", "null", "no mapping"],
)
def test_half_an_answer_or_other_types_prove_nothing(change: Callable[[Any], Any], code: int, run: Run) -> None:
    with serving(answering(change(info_of(planned(*WORDS.split()))))) as (port, _):
        done = run("diff", "--exit-code", WORDS, f"http://127.0.0.1:{port}")
    assert (done.code, "Traceback" in done.err) == (code, False), done.out


def test_the_key_comes_from_the_environment_and_is_shown_nowhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_HYDRA_API_KEY", KEY)
    with serving(answering(info_of(planned(*WORDS.split())))) as (port, asked):
        done = run("diff", "--json", WORDS, f"http://127.0.0.1:{port}")
    assert asked[0][1] == f"Bearer {KEY}"
    assert KEY not in done.out + done.err


def test_a_server_that_cannot_be_asked_is_a_problem_of_its_own(run: Run) -> None:
    with serving(answering({}, status=401)) as (port, _):
        done = run("diff", "--exit-code", WORDS, f"http://127.0.0.1:{port}")
    assert done.code == 3
    assert "answered 401" in done.out


@pytest.mark.parametrize(
    ("words", "id"),
    [
        ((WORDS, "http://127.0.0.1:1/v1"), "DIF002"),
        ((WORDS, "http://127.0.0.1:none"), "DIF002"),
        (("gpu=h200", "model=qwen3_8b", "http://127.0.0.1:1"), "DIF001"),
        (("gpu=h200 model=qwen3_8b topology=pd", "http://127.0.0.1:1"), "DIF002"),
    ],
)
def test_what_is_no_plan_or_no_address_is_refused(words: tuple[str, ...], id: str, run: Run) -> None:
    done = run("diff", *words)
    assert (done.code, id in done.err) == (2, True)
