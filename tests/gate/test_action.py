"""``action.yml``: its own steps, run as a runner does, on a change in a repo."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglang_hydra.convert.review.markdown import MARK
from tests.convert.export.exports import shellcheck
from tests.gate.runner import Action, git
from tests.plans import written
from tests.readme import REPOSITORY, environment

FILE = REPOSITORY / "action.yml"
OURS = "gpu: h100\nmodel: qwen3_8b\n"
PYTHON = """#!/bin/sh
echo "python $*" >> "{log}"
if [ "$2" = venv ]; then
  mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "{programs}/sglang-hydra" "$3/bin/sglang-hydra"
fi
"""
GH = """#!/bin/sh
echo "gh $*" >> "{log}"
case "$*" in *--paginate*) cat "{comments}";; esac
"""


class Repo:
    """A clone with a base and a change, and fake programs for what reaches the network."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.temp, programs = tmp_path / "repo", tmp_path / "temp", tmp_path / "programs"
        for folder in (self.temp, programs):
            folder.mkdir()
        self.log, self.comments = tmp_path / "log", tmp_path / "comments"
        self.comments.write_text("")
        base = {"launch/chat.yaml": OURS, "README.md": "Hello.\n", "flat.yaml": "name: x\n"}
        written(self.folder, base)
        git(self.folder, "init", "--quiet")
        self.commit()
        self.env = environment(programs)
        for name, text in {"python": PYTHON, "gh": GH}.items():
            filled = text.format(log=self.log, programs=programs, comments=self.comments)
            (programs / name).write_text(filled)
            (programs / name).chmod(0o755)
        self.programs = programs

    def commit(self) -> None:
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--message", "state")

    def github(self, fork: bool = False) -> Mapping[str, Any]:
        pull = {"number": 7, "base": {"sha": git(self.folder, "rev-parse", "HEAD~1")}}
        pull["head"] = {"repo": {"full_name": "eve/fork" if fork else "ada/serving"}}
        return {"repository": "ada/serving", "token": "t", "run_id": 1, "event": {"pull_request": pull}}

    def action(self, github: Mapping[str, Any] | None = None, **inputs: str) -> Action:
        return Action(FILE, github or self.github(), self.env, **inputs)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path)


def test_a_change_that_breaks_a_launch_is_annotated_commented_and_red(repo: Repo) -> None:
    (repo.folder / "launch/chat.yaml").write_text(f"{OURS}tp_size: 3\n")
    (repo.folder / "flat.yaml").write_text("name: y\n")
    (repo.folder / "README.md").write_text("Hello, world.\n")
    (repo.folder / "engine.python=x.sh").write_text(f"#!/bin/sh\ntouch {repo.temp}/was_run\n")
    repo.commit()
    ran = repo.action(version="0.1.0", sarif="true").run(repo.folder, repo.temp)
    assert not ran.ok
    assert ran.outputs["ok"] == "false"
    (line,) = re.findall("^::error .*$", ran.printed, re.MULTILINE)
    assert line.startswith("::error file=launch/chat.yaml,line=3,endLine=3,col=1,endColumn=8,title=CFG004::")
    said = (repo.temp / "summary.md").read_text()
    assert said.startswith(MARK)
    assert "This change moves" in said
    assert "| tp_size | " in said.replace("`", "")
    assert "1 launch file against" in said
    record = json.loads(Path(ran.outputs["sarif"]).read_text())
    assert [item["ruleId"] for item in record["runs"][0]["results"] if item["level"] == "error"] == ["CFG004"]
    assert ran.used["github/codeql-action/upload-sarif"]["sarif_file"] == ran.outputs["sarif"]
    log = repo.log.read_text()
    assert "pip install --quiet --disable-pip-version-check sglang-hydra==0.1.0" in log
    assert "gh api --method POST repos/ada/serving/issues/7/comments" in log
    assert not (repo.temp / "was_run").exists()


def test_the_comment_of_the_last_time_is_written_again(repo: Repo) -> None:
    (repo.folder / "launch/chat.yaml").write_text(f"{OURS}tp_size: 2\n")
    repo.commit()
    repo.comments.write_text("42\n43\n")
    ran = repo.action().run(repo.folder, repo.temp)
    assert (ran.ok, ran.outputs["ok"]) == (True, "true")
    assert "gh api --method PATCH repos/ada/serving/issues/comments/42" in repo.log.read_text()
    assert "--method POST" not in repo.log.read_text()
    assert "github/codeql-action/upload-sarif" not in ran.used


def test_a_fork_gets_no_comment(repo: Repo) -> None:
    (repo.folder / "launch/chat.yaml").write_text(f"{OURS}tp_size: 3\n")
    repo.commit()
    ran = repo.action(repo.github(fork=True)).run(repo.folder, repo.temp)
    assert not ran.ok
    assert "gh " not in repo.log.read_text()


def test_a_change_of_other_files_is_green_and_silent(repo: Repo) -> None:
    written(repo.folder, {"README.md": "Bye.\n", "flat.yaml": "a: 1\n", "empty.yaml": "", "x.json": "{}"})
    repo.commit()
    ran = repo.action().run(repo.folder, repo.temp)
    assert (ran.ok, ran.outputs["ok"]) == (True, "true")
    assert "::" not in ran.printed


def test_files_and_arguments_can_be_named(repo: Repo) -> None:
    (repo.folder / "README.md").write_text("Hello, world.\n")
    repo.commit()
    ran = repo.action(files="launch\n", arguments="tp_size=3\n--fail-on=warning\n").run(repo.folder, repo.temp)
    assert not ran.ok
    assert "title=CFG004" in ran.printed


def test_no_script_has_text_from_outside_in_it_and_all_are_clean(tmp_path: Path) -> None:
    steps = yaml.safe_load(FILE.read_text(encoding="utf-8"))["runs"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert [script for script in scripts if "${{" in script] == []
    assert shellcheck([f"#!/bin/bash\nset -eo pipefail\n{script}" for script in scripts], tmp_path) == ""
