"""The changelog, the release workflow, and the workflow that the example repo checks its changes with."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglang_hydra.convert.review.markdown import MARK
from tests.convert.export.exports import shellcheck
from tests.readme import REPOSITORY, environment
from tools import release_check

EXAMPLE = REPOSITORY / "examples" / "experiment_repo"
RELEASE = REPOSITORY / ".github" / "workflows" / "release.yml"
CHECK = EXAMPLE / ".github" / "workflows" / "check.yml"
TEST = REPOSITORY / ".github" / "workflows" / "test.yml"
WORKFLOWS = [RELEASE, CHECK, TEST]


def workflow(file: Path) -> dict[str, Any]:
    # A bare word: YAML's 1.1 would read the key "on" as true.
    loaded: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    return loaded


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(file)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_stores_no_secret_and_names_no_registry(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"secrets\.|password|pypi\.org|index-url|repository-url", text, re.IGNORECASE)
    assert workflow(file)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_no_script_of_a_workflow_has_text_from_outside_in_it(file: Path) -> None:
    assert [step["run"] for step in steps(file) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_every_script_of_a_workflow_is_clean(file: Path, tmp_path: Path) -> None:
    scripts = [f"#!/bin/bash\nset -eo pipefail\n{step['run']}" for step in steps(file) if "run" in step]
    assert scripts
    assert shellcheck(scripts, tmp_path) == ""


def test_only_the_job_that_publishes_may_prove_who_it_is() -> None:
    jobs = workflow(RELEASE)["jobs"]
    proving = [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})]
    assert proving == ["publish"]
    assert jobs["publish"]["needs"] == "try"
    assert jobs["try"]["needs"] == "build"
    assert not any("run" in step for step in jobs["publish"]["steps"])


@pytest.mark.parametrize("file", [RELEASE, TEST], ids=lambda file: file.name)
def test_what_a_workflow_makes_exists(file: Path) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for step in steps(file):
        for target in re.findall(r"^make (\w+)", step.get("run", ""), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_version_of_the_package_is_in_the_changelog() -> None:
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert release_check.problems(f"v{release_check.version()}", changelog) == []
    assert next(iter(release_check.sections(changelog))) == "Unreleased"


@pytest.mark.parametrize(
    ("tag", "changelog", "said"),
    [
        ("v{0}", "## [Unreleased]\n\n- More.\n\n## [{0}] - 2025-01-31\n\n- Something.\n", []),
        ("{0}", "## [{0}] - 2025-01-31\n\n- Something.\n", ["the tag must be"]),
        ("v99.0", "## [99.0] - 2025-01-31\n\n- Something.\n", ["the tag must be"]),
        ("v{0}", "## [{0}]\n\n- Something.\n", ["no section"]),
        ("v{0}", "## [{0}] - 2025-01-31\n\n## [0.0.1] - 2025-01-01\n\n- Something.\n", ["no section"]),
        ("v{0}", "", ["no section"]),
    ],
)
def test_a_tag_is_released_only_with_its_version_and_its_section(tag: str, changelog: str, said: list[str]) -> None:
    version = release_check.version()
    found = release_check.problems(tag.replace("{0}", version), changelog.replace("{0}", version))
    assert len(found) == len(said)
    assert all(words in line for words, line in zip(said, found, strict=True))


def test_the_notes_of_a_release_are_its_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert release_check.main([f"v{release_check.version()}", "--notes"]) == 0
    said = capsys.readouterr().out
    assert "### Added" in said
    assert "## [" not in said
    assert release_check.main(["v99.0", "--notes"]) == 1
    assert release_check.main([]) == 1


def test_the_check_of_the_example_repo_writes_its_comment(tmp_path: Path) -> None:
    """Its own script, on a change to its own model, with the command of this checkout."""
    (script,) = [step["run"] for step in steps(CHECK) if step.get("id") == "check"]
    (comment,) = [step["run"] for step in steps(CHECK) if "gh api" in step.get("run", "")]
    assert MARK in comment
    programs, repo = tmp_path / "programs", tmp_path / "repo"
    programs.mkdir()
    shutil.copytree(EXAMPLE, repo, ignore=shutil.ignore_patterns("outputs", "multirun", "__pycache__"))
    env = environment(programs) | {"BASE": "HEAD", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    env = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "--quiet"], ["add", "--all"], [*who, "commit", "--quiet", "--message", "state"]):
        subprocess.run(["git", *words], cwd=repo, env=env, check=True, timeout=250)
    model = repo / "conf" / "model" / "my_model.yaml"
    model.write_text(model.read_text().replace("reasoning_parser: qwen3", "reasoning_parser: deepseek-r1"))
    command = ["bash", "-eo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=repo, env=env, capture_output=True, encoding="utf-8", timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = (repo / "comment.md").read_text(encoding="utf-8")
    assert said.startswith(MARK)
    assert "This change moves reasoning_parser from qwen3 to `deepseek-r1`." in said
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == said
