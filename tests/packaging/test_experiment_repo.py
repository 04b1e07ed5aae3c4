"""examples/experiment_repo in a clean environment with the wheel: every command of its README, and what it brings."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.conftest import REPOSITORY, Environment, run

pytestmark = pytest.mark.registry

EXAMPLE = REPOSITORY / "examples" / "experiment_repo"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "repo", ignore=shutil.ignore_patterns("outputs", "multirun", "__pycache__"))
    return tmp_path / "repo"


def commands() -> list[list[str]]:
    """The lines of its README that are commands, without the installation."""
    lines = re.findall(r"^    ((?:python|sglang-hydra) [^#\n]+)", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines]


def typed(environment: Environment, words: list[str]) -> list[str]:
    program = {"python": environment.python, "sglang-hydra": environment.command}[words[0]]
    return [program, *words[1:]]


def plans(repo: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(repo.rglob("plan.json"))]


def test_every_command_of_its_readme_works(installed: Environment, repo: Path) -> None:
    assert len(commands()) == 6
    for words in commands():
        run(*typed(installed, words), cwd=repo)


def test_its_model_its_pair_file_and_its_experiment_are_in_the_plan(installed: Environment, repo: Path) -> None:
    printed = run(installed.python, "run.py", "+experiment=long_context", "gpu=h200", cwd=repo)
    assert "can be launched" in printed
    (plan,) = plans(repo)
    assert plan["choices"]["model"] == "my_model"
    assert plan["intent"] == {
        "model_path": "my-lab/qwen3-8b-support",
        "context_length": 40960,
        "kv_cache_dtype": "fp8_e5m2",
        "page_size": 16,
        "chunked_prefill_size": 16384,
        "random_seed": 7,
        "enable_metrics": True,
        "reasoning_parser": "qwen3",
    }
    layers = {name: chain[-1]["layer"] for name, chain in plan["origins"].items()}
    assert (layers["page_size"], layers["context_length"], layers["reasoning_parser"]) == (
        "gpu_model",
        "experiment",
        "model",
    )
    assert plan["fit"]["fits"]


def test_a_multirun_plans_every_job(installed: Environment, repo: Path) -> None:
    run(installed.python, "run.py", "-m", "gpu=h100,h200", "tp_size=1,2", cwd=repo)
    made = plans(repo)
    assert [(plan["gpu"]["name"], plan["values"]["tp_size"], plan["values"]["page_size"]) for plan in made] == [
        ("h100", 1, 1),
        ("h100", 2, 1),
        ("h200", 1, 16),
        ("h200", 2, 16),
    ]


def test_the_command_reads_the_same_folder(installed: Environment, repo: Path) -> None:
    words = ["explain", "page_size", "--config-dir", "conf", "gpu=h200", "model=my_model"]
    assert "conf/gpu_model/h200-my_model.yaml:2" in run(installed.command, *words, cwd=repo)


def test_a_mistake_in_its_yaml_gets_file_line_and_key(installed: Environment, repo: Path) -> None:
    experiment = repo / "conf" / "experiment" / "long_context.yaml"
    experiment.write_text(experiment.read_text() + "contxt_length: 3\n")
    printed = run(installed.python, "run.py", "+experiment=long_context", cwd=repo, exits=2)
    assert "conf/experiment/long_context.yaml:6" in printed
    assert "did you mean context_length?" in printed
    words = ["plan", "--config-dir", "conf", "model=my_model", "+experiment=long_context", "gpu=h200"]
    printed = run(installed.command, *words, cwd=repo, exits=2)
    assert "conf/experiment/long_context.yaml:6" in printed
    assert "did you mean context_length?" in printed


BROKEN = {
    "syntax": ("context_length: [1\nx: 3\n", "{file}:3:2: this is no YAML"),
    "type": ("context_length: abc\n", "{file}:2: context_length='abc' is not an int"),
    "choice": ("attention_backend: fa33\n", "{file}:2: attention_backend='fa33' is not among its"),
    "node": ("gpu: {cuont: 3}\n", "{file}:2: gpu has no key 'cuont'"),
    "link": ("tp_size: ${nowhere}\n", "{file}:2: tp_size: Interpolation key 'nowhere' not found"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_by_the_app_and_by_the_command(name: str, installed: Environment, repo: Path) -> None:
    content, expected = BROKEN[name]
    file = repo / "conf" / "experiment" / "broken.yaml"
    file.write_text("# @package _global_\n" + content)
    told = expected.format(file="conf/experiment/broken.yaml")
    for printed in (
        run(installed.python, "run.py", "+experiment=broken", cwd=repo, exits=2),
        run(installed.command, "plan", "--config-dir", "conf", "model=my_model", "+experiment=broken", "gpu=h200",
            cwd=repo, exits=2),
    ):  # fmt: skip
        assert told in " ".join(printed.split())
        assert "Traceback" not in printed


def test_a_preset_that_hides_ours_is_named(installed: Environment, repo: Path) -> None:
    (repo / "conf" / "model" / "qwen3_8b.yaml").write_text("name: qwen3_8b\nmodel_path: ours/qwen\n")
    words = ["plan", "--config-dir", "conf", "model=qwen3_8b", "gpu=h200"]
    assert "conf/model/qwen3_8b.yaml hides" in run(installed.command, *words, cwd=repo)
    words = ["explain", "model_path", "--config-dir", "conf", "model=qwen3_8b", "gpu=h200"]
    assert "conf/model/qwen3_8b.yaml hides" in run(installed.command, *words, cwd=repo)


def test_a_recipe_is_an_option_of_the_app_too(installed: Environment, repo: Path) -> None:
    printed = run(
        installed.python, "run.py", "-m", "+recipe=deepseek_v3-h200-8,deepseek_v3-h200-8-low-latency", cwd=repo
    )
    assert [plan["gpu"]["name"] for plan in plans(repo)] == ["h200", "h200"], printed
