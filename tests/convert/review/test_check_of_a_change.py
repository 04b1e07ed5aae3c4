"""``check --base`` and ``--format markdown``: what a change does to launch files."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.planning.making import replan
from sglang_hydra.planning.making.composed import plan_once
from sglang_hydra.planning.plan import Plan
from tests.commands import Run, runner, valid
from tests.plans import written

L40S = "gpu: l40s\nmodel: qwen3_32b\ntp_size: 2\n"
H200 = "gpu: h200\nmodel: gpt_oss\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repo with one commit: two launch files, and a model of its own."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "repo"
    own = "defaults: [qwen3_8b]\nname: own\nmodel_path: lab/own\nargs:\n  reasoning_parser: qwen3\n"
    written(folder, {"launch/l40s.yaml": L40S, "launch/h200.yaml": H200, "conf/model/own.yaml": own})
    git(folder, "init", "--quiet")
    commit(folder)
    monkeypatch.chdir(folder)
    return folder


def git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *own, *words], cwd=folder, check=True, timeout=60, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "state")


def sentences(printed: str) -> Mapping[str, str]:
    record = valid("check", printed)
    return {result["name"]: result["sentence"] for result in record["results"]}


def test_a_value_that_moves_and_a_fit_that_is_lost_are_one_sentence(repo: Path, run: Run) -> None:
    (repo / "launch/l40s.yaml").write_text(f"{L40S}mem_fraction_static: 0.68\n")
    printed = run("check", "--base", "HEAD", "--format", "markdown", "launch")
    assert printed.code == 2
    said = "This change moves mem_fraction_static from 0.767 to 0.68 and no longer fits l40s."
    assert said in printed.out
    assert "| `mem_fraction_static` | `0.767` | `0.68` | `MEM001: " in printed.out
    assert "`experiment, launch/l40s.yaml:4`" in printed.out
    assert "`launch/h200.yaml`: This change moves nothing in it." in printed.out
    only = ("--upstream-only", "--base", "HEAD", "--format", "markdown", "launch")
    assert run("check", *only).code == 0  # SGLang would accept it


CHANGES = [
    ({"launch/h200.yaml": f"{H200}page_size: 16\n"}, "launch/h200.yaml", "This change moves page_size from 1 to 16."),
    (
        {"launch/h200.yaml": H200.replace("h200", "h100")},
        "launch/h200.yaml",
        "This change moves gpu.name from h200 to h100 and mem_fraction_static from 0.911 to 0.874.",
    ),
    (
        {"launch/h200.yaml": f"{H200}tp_size: 3\n"},
        "launch/h200.yaml",
        "breaks it: it could be launched before, and SGLang would accept it and then fail",
    ),
    ({"launch/h200.yaml": f"{H200}pp_size: 0\n"}, "launch/h200.yaml", "breaks it: "),
    (
        {"launch/h200.yaml": f"{H200}tpsize: 2\n"},
        "launch/h200.yaml",
        "It cannot be composed; it could be composed before.",
    ),
    ({"launch/more.yaml": H200}, "launch/more.yaml", "Added by this change."),
    ({"launch/h200.yaml": f"# a comment\n{H200}"}, "launch/h200.yaml", "This change moves nothing in it."),
    (
        {"launch/h200.yaml": f"{H200}topology: replicas\nreplicas: 2\ntp_size: 2\n"},
        "launch/h200.yaml",
        "This change moves topology from single to replicas, servers from 1 to 2",
    ),
]


@pytest.mark.parametrize(("files", "name", "said"), CHANGES)
def test_each_change_has_its_sentence(files: Mapping[str, str], name: str, said: str, repo: Path, run: Run) -> None:
    written(repo, files)
    assert said in sentences(run("check", "--base", "HEAD", "--json", "launch").out)[name]


def test_each_file_is_planned_once_in_each_state(repo: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a command of others, and one with a flag that nobody knows."""
    command = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2\n"
    written(repo, {"launch/run.sh": command})
    commit(repo)
    changed = {"launch/l40s.yaml": f"{L40S}page_size: 16\n", "launch/run.sh": command.replace("--tp", "--nope 1 --tp")}
    written(repo, changed)
    planned: list[object] = []

    def counted(*words: Any, **named: Any) -> Plan:
        planned.append(words)
        return plan_once(*words, **named)

    monkeypatch.setattr(replan, "plan_once", counted)
    printed = run("check", "--base", "HEAD", "--json", *changed, "gpu=h200")
    assert [result["ok"] for result in valid("check", printed.out)["results"]] == [True, False]
    assert len(planned) == 4


def test_a_change_to_a_preset_is_a_change_to_the_files_that_use_it(repo: Path, run: Run) -> None:
    written(repo, {"launch/own.yaml": "gpu: h200\nmodel: own\n"})
    commit(repo)
    preset = repo / "conf/model/own.yaml"
    preset.write_text(preset.read_text().replace("qwen3\n", "deepseek-r1\n"))
    printed = run("check", "--config-dir", "conf", "--base", "HEAD", "--json", "launch/own.yaml")
    assert sentences(printed.out) == {
        "launch/own.yaml": "This change moves reasoning_parser from qwen3 to deepseek-r1."
    }
    (moved,) = json.loads(printed.out)["results"][0]["differences"]
    assert moved["why"] == {"left": "model, conf/model/own.yaml:5", "right": "model, conf/model/own.yaml:5"}


def test_a_file_that_is_gone_is_no_error_where_the_base_had_it(repo: Path, run: Run) -> None:
    (repo / "launch/h200.yaml").unlink()
    for words in (["launch"], ["launch/h200.yaml", "launch/l40s.yaml"]):
        printed = run("check", "--base", "HEAD", "--json", *words)
        assert printed.code == 0
        assert sentences(printed.out)["launch/h200.yaml"] == "Removed by this change."
    assert run("check", "--format", "markdown", "launch/h200.yaml").code == 2


def test_the_base_may_be_a_folder(repo: Path, tmp_path: Path, run: Run) -> None:
    shutil.copytree(repo, tmp_path / "base", ignore=shutil.ignore_patterns(".git"))
    (repo / "launch/h200.yaml").write_text(f"{H200}page_size: 16\n")
    printed = run("check", "--base", "../base", "launch/h200.yaml")
    assert printed.out.splitlines()[-1] == "  This change moves page_size from 1 to 16."


def test_from_a_folder_within_the_repo_paths_lead_from_there(
    repo: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "launch/h200.yaml").write_text(f"{H200}page_size: 16\n")
    monkeypatch.chdir(repo / "conf")
    printed = run("check", "--base", "HEAD", "--json", "../launch/h200.yaml", str(repo / "launch/l40s.yaml"))
    assert [result["state"] for result in json.loads(printed.out)["results"]] == ["changed", "same"]


def test_the_repo_is_left_as_it_was(repo: Path, run: Run) -> None:
    (repo / "launch/h200.yaml").write_text(f"{H200}page_size: 16\n")
    git(repo, "add", "launch/h200.yaml")
    before = {file: file.read_bytes() for file in sorted(repo.rglob("*")) if file.is_file()}
    assert run("check", "--base", "HEAD", "--format", "markdown", "launch").code == 0
    assert {file: file.read_bytes() for file in sorted(repo.rglob("*")) if file.is_file()} == before
    assert Path.cwd() == repo


def test_without_a_base_it_is_the_verdicts(repo: Path, run: Run) -> None:
    printed = run("check", "--format", "markdown", "launch").out
    assert printed.startswith("<!-- sglang-hydra check -->\n### sglang-hydra check: all can be launched\n")
    assert "nothing to compare with" in printed


@pytest.mark.parametrize(
    ("words", "id", "told"),
    [
        (["check", "--format", "html", "x.yaml"], "REV001", "markdown"),
        (["check", "--json", "--format", "markdown", "x.yaml"], "REV001", "leave one out"),
        (["check", "-m", "--format", "markdown", "gpu=h100,h200"], "REV001", "once for each"),
        (["plan", "--base", "main", "gpu=h200"], "REV001", "diff"),
        (["check", "--base", "no-such-revision", "launch"], "REV002", "git fetch"),
        (["check", "--base", "--help", "launch"], "REV002", "git fetch"),
        (["check", "--base"], "CLI012", "--base"),
    ],
)
def test_what_cannot_be_done_says_so(words: list[str], id: str, told: str, repo: Path, run: Run) -> None:
    printed = run(*words)
    assert printed.code == 2
    assert id in printed.out + printed.err
    assert told in printed.out + printed.err


def test_outside_of_git_a_base_is_refused(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(written(tmp_path, {"a.yaml": H200}))
    printed = run("check", "--base", "main", "a.yaml")
    assert (printed.code, "REV002" in printed.err) == (2, True)


def test_a_folder_called_like_a_group_may_hold_launch_files(repo: Path, run: Run) -> None:
    assert run("check", "launch").code == 0
    written(repo, {"launch/option.yaml": "name: local\nready_timeout: soon\n"})
    assert "launch.ready_timeout" in run("check", "launch/option.yaml").out
