"""``check``: YAML files, plans and folders of them, each judged by itself, with the line of every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import H200, Run, runner, valid
from tests.plans import written


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


GOOD = "gpu: h200\nmodel: qwen3_8b\ntp_size: 2\n"
EXPERIMENT = """\
# @package _global_
defaults:
  - override /gpu: h100
  - override /model: gpt_oss
tp_size: ${gpu.count}
gpu: {count: 4}
"""


def test_check_judges_a_yaml_file(run: Run, tmp_path: Path) -> None:
    files = written(tmp_path, {"good.yaml": GOOD, "experiment.yaml": EXPERIMENT})
    record = valid("check", run("check", "--json", str(files / "good.yaml"), str(files / "experiment.yaml")).out)
    assert record["ok"]
    assert [Path(result["name"]).name for result in record["results"]] == ["good.yaml", "experiment.yaml"]
    assert record["results"][0]["server_id"] == _server_id(run, *H200, "tp_size=2")
    assert record["results"][1]["server_id"] == _server_id(run, "gpu=h100", "model=gpt_oss", "tp_size=4", "gpu.count=4")


def _server_id(run: Run, *overrides: str) -> str:
    return str(valid("plan", run("plan", "--json", *overrides).out)["server_id"])


def test_check_names_the_line_of_a_mistake(run: Run, tmp_path: Path) -> None:
    files = written(tmp_path, {"bad.yaml": f"{GOOD}tpsize: 2\nserved_model_name: off\nlaunch: {{force: maybe}}\n"})
    printed = run("check", str(files / "bad.yaml"))
    assert printed.code == 2
    out = printed.out.replace("\n                ", " ")
    assert "bad.yaml:4: 'tpsize' is neither" in out
    assert "bad.yaml:5: served_model_name=false" in out
    assert "bad.yaml:6: launch.force='maybe'" in out


def test_check_walks_a_folder(run: Run, tmp_path: Path) -> None:
    files = written(
        tmp_path,
        {
            "good.yaml": GOOD,
            "deeper/other.yml": GOOD,
            "bad.yaml": "tpsize: 2\n",
            "result.json": '{"schema": "sglang_hydra.result/1"}',
            "broken.json": "{",
            "notes.txt": "no config",
            ".github/workflows/check.yml": "jobs: {}",
            "env/pyvenv.cfg": "",
            "env/lib/data.yaml": "a: 1",
        },
    )
    record = valid("check", run("check", "--json", str(files)).out)
    assert not record["ok"]
    names = {Path(result["name"]).name: result["ok"] for result in record["results"]}
    assert names == {"bad.yaml": False, "broken.json": False, "other.yml": True, "good.yaml": True}


def test_an_environment_is_no_folder_of_launch_files(run: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "env", {"pyvenv.cfg": "", "lib/data.yaml": "a: 1"})
    printed = run("check", "gpu=h200", "model=qwen3_8b", str(folder))
    assert printed.code == 2
    assert " ".join(printed.out.split()).count("it is a Python environment; engine.python=") == 1
    assert "data.yaml" not in printed.out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.yaml", "tp_size: [1\n", "a.yaml:2:1 cannot be read: it is no YAML"),
        ("a.yaml", "", "it holds nothing, not a mapping"),
        ("a.yaml", "- 1\n", "it holds a list, not a mapping"),
        ("a.yaml", "just text\n", "it holds text, not a mapping"),
        ("a.yaml", "tp_size: 1\ntp_size: 2\n", "duplicate key"),
        ("a.yaml", "a: \x07\n", "it is no YAML"),
        ("a.yaml", "defaults: [base]\n", "a.yaml:1 cannot be read: the entry 'base' of its defaults list"),
        ("a.yaml", "defaults:\n- gpu: [h100, h200]\n", "includes another config"),
        ("a.yaml", "defaults:\n- gpu: nope\n", "a.yaml:1: gpu=nope does not exist"),
        ("a.json", "{", "a.json:1:2 cannot be read: it is no JSON"),
        ("a.json", "[]", "it is no plan, as it names no schema"),
        ("a.json", '{"schema": "other/1"}', "its schema is 'other/1', and only 'sglang_hydra.plan/3' can be"),
        ("a.json", '{"schema": "sglang_hydra.plan/1"}', "it is no whole plan: engine is missing"),
        ("missing.yaml", None, "No such file or directory"),
        ("folder.yaml/", None, "there is no .yaml or .json file in it"),
    ],
    ids=str,
)
def test_check_says_why_a_file_cannot_be_read(
    name: str, content: str | None, said: str, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content, encoding="utf-8")
    elif name.endswith("/"):
        path.mkdir()
    record = valid("check", run("check", "--json", str(path)).out)
    assert said in record["results"][0]["findings"][0]["message"]
    assert run("check", str(path)).code == 2


def test_check_refuses_a_file_that_is_no_text(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"a: \xff\n")
    assert "it is not UTF-8 text" in run("check", str(tmp_path / "a.yaml")).out
    (tmp_path / "a.yaml").write_text("gpu: h100\n", encoding="utf-16")
    assert "it is UTF-16 text, as PowerShell writes it: save it as UTF-8" in run("check", str(tmp_path / "a.yaml")).out


def test_check_judges_presets_by_the_folder_they_are_in(run: Run, tmp_path: Path) -> None:
    files = written(
        tmp_path,
        {
            "gpu/mine.yaml": "defaults: [h100]\nname: mine\ncount: 2\n",
            "gpu/bad.yaml": "defaults: [h100]\nname: bad\nmemory: 2\n",
            "model/mine.yaml": "name: mine\nmodel_path: org/mine\nconfig: {num_attention_heads: 7}\n",
        },
    )
    record = valid("check", run("check", "--json", str(files / "gpu"), "model=qwen3_8b", "tp_size=4").out)
    by_name = {Path(result["name"]).name: result for result in record["results"]}
    assert [finding["id"] for finding in by_name["mine.yaml"]["findings"]] == ["GPU001"]
    assert "bad.yaml:3: gpu has no key 'memory'" in by_name["bad.yaml"]["findings"][0]["message"]
    record = valid("check", run("check", "--json", str(files / "model"), "gpu=h100", "tp_size=2").out)
    assert "CFG004" in [finding["id"] for finding in record["results"][0]["findings"]]


EAGLE3 = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
PLANS = [
    [*H200, "tp_size=2"],
    ["gpu=h100", "model=gpt_oss", "gpu.count=4", "gpu.memory_mib=90000", "tp_size=2"],
    [*H200, "model.config.num_attention_heads=8", "random_seed=7"],
    [*H200, "model_path=/nowhere", "schedule_conservativeness=inf", "lora_paths={a: b}"],
    ["gpu=cpu", "model=tiny", "engine.env.SGLANG_X=1", "engine.version=0.5.3"],
    [*H200, "tp_size=3", "ignore=[CFG004]", "served_model_name='a${b}'", "api_key=sekret"],
    ["gpu=none", "model=unset"],
    ["model=qwen3_8b"],
    [*H200, "engine.version=0.5.23", "extra.enable_mis=true"],
    ["gpu=b200", "model=deepseek_v3", "tp_size=8", "engine.version=0.5.23"],
    ["gpu=h100", "model=llama_3_1_8b", f"speculative_draft_model_path={EAGLE3}", "speculative_algorithm=EAGLE3"],
]


@pytest.mark.parametrize("overrides", PLANS, ids=str)
def test_a_plan_file_is_judged_by_what_it_was_made_with(
    overrides: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_RUN_ID", "1")
    overrides = [text.replace("'a${b}'", r"'a\${b}'") for text in overrides]
    text = run("plan", "--json", *overrides).out
    made = valid("plan", text)
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    monkeypatch.delenv("SGLANG_RUN_ID")
    record = valid("check", run("check", "--json", str(path)).out)
    (result,) = record["results"]
    assert result["server_id"] == made["server_id"]
    assert (result["ok"], result["launchable"]) == (made["ok"], made["launchable"])


def test_what_is_typed_beside_a_plan_file_beats_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(run("plan", "--json", *H200, "tp_size=2").out, encoding="utf-8")
    (result,) = valid("check", run("check", "--json", str(path), "tp_size=16").out)["results"]
    assert [finding["id"] for finding in result["findings"]] == ["GPU001"]
    (other,) = valid("check", run("check", "--json", str(path), "gpu=h100").out)["results"]
    assert other["server_id"] == _server_id(run, "gpu=h100", "model=qwen3_8b", "tp_size=2")


@pytest.mark.parametrize("content", ["a: &a [*a]\n", "a: &a {b: *a}\n"])
def test_a_file_that_contains_itself_is_refused(content: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(content, encoding="utf-8")
    printed = run("check", "--json", str(path))
    assert printed.code == 2
    (finding,) = valid("check", printed.out)["results"][0]["findings"]
    assert finding["id"] == "CLI017"
    assert "server.yaml cannot be read: the alias *a is within the value that it names" in finding["message"]


def test_a_file_may_say_null_where_it_is_a_word(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("gpu: h200\nmodel: gpt_oss\ndisaggregation_mode: null\n", encoding="utf-8")
    assert run("check", str(path)).code == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"gpu": None},
        {"gpu": {"name": "x"}},
        {"model": []},
        {"intent": 5},
        {"extra": 5},
        {"choices": None, "engine": "x"},
        {"values": {}, "seed_drawn": True},
        {"environment": [1]},
        {"inherited": 5},
        {"ignored": [{}]},
        {"intent": {"tpsize": 8}},
        {"intent": {"tp_size": "x"}},
    ],
    ids=str,
)
def test_a_plan_file_that_was_tampered_with_is_refused(broken: dict[str, Any], run: Run, tmp_path: Path) -> None:
    made = json.loads(run("plan", "--json", *H200).out)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**made, **broken}), encoding="utf-8")
    printed = run("check", "--json", str(path))
    assert printed.code == 2
    assert valid("check", printed.out)["results"][0]["findings"][0]["id"] in ("CLI017", "CLI001", "CLI002")
