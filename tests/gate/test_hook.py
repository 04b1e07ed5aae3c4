"""``.pre-commit-hooks.yaml`` through pre-commit itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.gate.runner import git
from tests.plans import written
from tests.readme import REPOSITORY, environment

pytest.importorskip("pre_commit", reason="make test installs it")
HOOKS = REPOSITORY / ".pre-commit-hooks.yaml"
OURS = "gpu: h100\nmodel: qwen3_8b\n"
SCRIPT = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 3\n"
OTHERS = {
    "flat.yaml": "name: x\nport: 1\n",
    "package.json": '{"name": "x"}',
    "empty.yaml": "",
    "hello.sh": "#!/bin/sh\necho hello\n",
    "mkdocs.yml": "site_name: x\nnav: [a.md]\n",
    "train.yaml": "data: {path: x}\nmodel: {hidden: 3}\noptim: {lr: 0.1}\n",
    "README.md": "Hello.\n",
    "app.py": "print('sglang')\n",
}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    written(tmp_path / "repo", {"chat.yaml": OURS, **OTHERS})
    git(tmp_path / "repo", "init", "--quiet")
    return tmp_path / "repo"


def pre_commit(repo: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    git(repo, "add", "--all")
    env = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    env |= {"PRE_COMMIT_HOME": str(repo.parent / "home"), "PRE_COMMIT_COLOR": "never"}
    command = [sys.executable, "-m", "pre_commit", *words]
    return subprocess.run(command, cwd=repo, env=env, capture_output=True, encoding="utf-8", timeout=280, check=False)


def test_the_hook_judges_launch_files_and_passes_over_all_others(repo: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    env = environment(programs)
    hooks = [{**hook, "language": "system"} for hook in yaml.safe_load(HOOKS.read_text(encoding="utf-8"))]
    config = {"repos": [{"repo": "local", "hooks": hooks}]}
    (repo / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    done = pre_commit(repo, env, "run", "--all-files", "--verbose")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "chat.yaml: " in done.stdout
    assert [name for name in OTHERS if f"{name}: " in done.stdout] == []
    (repo / "serve.sh").write_text(SCRIPT)
    done = pre_commit(repo, env, "run", "--all-files")
    assert done.returncode == 1
    assert "error CFG004" in done.stdout


@pytest.mark.registry
def test_pre_commit_installs_the_hook_and_runs_it(repo: Path) -> None:
    clone = repo.parent / "clone"
    git(REPOSITORY, "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(clone))
    (repo / "serve.sh").write_text(SCRIPT)
    env = dict(os.environ)
    done = pre_commit(repo, env, "try-repo", str(clone), "sglang-hydra-check", "--all-files")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "error CFG004" in done.stdout
