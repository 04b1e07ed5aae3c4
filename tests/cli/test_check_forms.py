"""``check --format github``, ``sarif`` and ``junit``: each finding at the word that it is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from tests.commands import Run, runner
from tests.plans import written

SCHEMA = json.loads((Path(__file__).parents[1] / "data/sarif/sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
SCRIPT = """#!/bin/bash
# --tp 3 is what it was
ARGS=(--tp 3
  --trust-remote-code)
python -m sglang.launch_server --model-path Qwen/Qwen3-8B "${ARGS[@]}" &
python -m sglang.launch_server --model-path Qwen/Qwen3-8B --port 31000 \\
    --mem-fraction-static 1.5
"""
MANIFEST = """apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  template:
    spec:
      containers:
        - name: idle
          image: busybox
          args: ["--tp=3"]
        - name: server
          image: lmsysorg/sglang:v0.5.9
          command: ["python3", "-m", "sglang.launch_server"]
          args: [--model-path, Qwen/Qwen3-8B, "--tp=3", --bogus-flag, "4"]  # --tp=5
"""
SHELL_IN_YAML = """apiVersion: v1
kind: Pod
metadata: {name: chat}
spec:
  containers:
    - image: lmsysorg/sglang:v0.5.9
      command: ["/bin/sh", "-c"]
      args:
        - |
          # it's --tp 9
          python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B \\
            --mem-fraction-static 1.5 --tp 3
"""
DOCKERFILE = """FROM lmsysorg/sglang:v0.5.9
# it is not --tp 3
CMD ["python3", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B", \\
     "--tp=3", "--bogus-flag", "1"]
"""
OURS = "gpu: h100\nmodel: qwen3_8b\n\ntp_size: 3   # tp_size: 5\n"
JSON = '{"model-path": "Qwen/Qwen3-8B",\n "tp-size": 3}\n'


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


def results(text: str) -> list[dict[str, Any]]:
    """The results of a SARIF file that its schema takes."""
    record = json.loads(text)
    jsonschema.validate(record, SCHEMA)
    (made,) = record["runs"]
    rules = [rule["id"] for rule in made["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in made["results"]] == [item["ruleId"] for item in made["results"]]
    found: list[dict[str, Any]] = made["results"]
    return found


def words_at(text: str, found: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """Each finding's id, line, and the very text that its region has."""
    lines, marked = text.split("\n"), []
    for result in found:
        (location,) = result["locations"]
        region = location["physicalLocation"]["region"]
        word = lines[region["startLine"] - 1][region["startColumn"] - 1 : region["endColumn"] - 1]
        marked.append((result["ruleId"], region["startLine"], word))
    return marked


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "serve.sh",
            SCRIPT,
            [("CFG004", 3, "--tp"), ("CFG005", 7, "--mem-fraction-static")],
        ),
        ("chat.yaml", MANIFEST, [("ARG010", 14, "--bogus-flag"), ("CFG004", 14, "--tp")]),
        ("pod.yaml", SHELL_IN_YAML, [("CFG004", 12, "--tp"), ("CFG005", 12, "--mem-fraction-static")]),
        ("Dockerfile", DOCKERFILE, [("ARG010", 4, "--bogus-flag"), ("CFG004", 4, "--tp")]),
        ("ours.yaml", OURS, [("CFG004", 4, "tp_size")]),
        ("flags.json", JSON, [("CFG004", 2, "tp-size")]),
        ("crlf.yaml", OURS.replace("\n", "\r\n"), [("CFG004", 4, "tp_size")]),
        ("typo.yaml", "gpu: h100\nmodel: qwen3_8b\n bogus: 1\n", [("CLI017", 3, ":")]),
        ("key.yaml", "gpu: h100\nmodel: qwen3_8b\nbogus: 1\n", [("CLI001", 3, "bogus")]),
    ],
)
def test_a_finding_stands_at_the_word_that_it_is_about(
    run: Run, tmp_path: Path, name: str, text: str, words: list[tuple[str, int, str]]
) -> None:
    (tmp_path / name).write_text(text, newline="")
    typed = [] if name in ("ours.yaml", "crlf.yaml", "typo.yaml", "key.yaml") else ["gpu=h100"]
    printed = run("check", "--format", "sarif", *typed, name)
    assert printed.code == 2
    assert words_at(text, [item for item in results(printed.out) if item["level"] == "error"]) == words


def test_an_annotation_cannot_end_early(run: Run, tmp_path: Path) -> None:
    name = "a,b::error x%0A.yaml"
    (tmp_path / name).write_text(OURS)
    printed = run("check", "--format", "github", name)
    (line,) = (line for line in printed.out.splitlines() if line.startswith("::error"))
    assert line.startswith("::error file=a%2Cb%3A%3Aerror x%250A.yaml,line=4,endLine=4,col=1,endColumn=8,title=CFG004")
    assert "%0Ahint: tp_size=4" in line.partition("title=")[2]
    assert printed.code == 2
    assert printed.err == ""


def test_a_message_is_no_link(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("gpu: h100\n'[look](https://example.org)': 1\n")
    printed = run("check", "--format", "sarif", "x.yaml")
    assert [item["message"]["text"].count("](") for item in results(printed.out)] == [0]


def test_a_file_that_is_good_has_no_annotation(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("gpu: h100\nmodel: qwen3_8b\n")
    assert run("check", "--format", "github", "x.yaml") == (0, "", "")
    printed = run("check", "--format", "sarif", "x.yaml")
    assert (printed.code, results(printed.out)) == (0, [])


def test_overrides_have_no_place(run: Run) -> None:
    printed = run("check", "--format", "sarif", "gpu=h100", "model=qwen3_8b", "tp_size=3")
    found = [item for item in results(printed.out) if item["level"] == "error"]
    assert [(item["ruleId"], "locations" in item) for item in found] == [("CFG004", False)]


def test_junit_has_a_case_for_each_file(run: Run, tmp_path: Path) -> None:
    written(tmp_path, {"bad.yaml": OURS, "good.yaml": "gpu: h100\nmodel: qwen3_8b\n"})
    printed = run("check", "--format", "junit", "bad.yaml", "good.yaml")
    root = ElementTree.fromstring(printed.out)
    cases = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
    assert (printed.code, root.get("tests"), root.get("failures")) == (2, "2", "1")
    assert cases["good.yaml"] is None
    assert cases["bad.yaml"] is not None
    assert cases["bad.yaml"].get("type") == "CFG004"
    assert "bad.yaml:4:1: error CFG004: " in str(cases["bad.yaml"].text)


def test_fail_on_decides_what_fails(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("gpu: h100\nmodel: qwen3_8b\nfit.context: 900000\n")
    assert [run("check", "--format", "junit", *more, "x.yaml").code for more in ([], ["--fail-on=warning"])] == [0, 2]
    assert 'failures="1"' in run("check", "--format", "junit", "--fail-on=warning", "x.yaml").out


@pytest.mark.thorough
def test_a_hostile_file_is_no_wait(run: Run, tmp_path: Path) -> None:
    flags = "\n".join(f'  - "--tp-{number}"' for number in range(14_000))
    (tmp_path / "x.yaml").write_text(f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - args:\n{flags}\n")
    assert run("check", "--format", "github", "x.yaml").code == 2
