"""What is in the wheel and the sdist, and that every way of installing them plans from anywhere."""

from __future__ import annotations

import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import REPOSITORY, Built, Environment, make_environment, run, run_uv
from tests.readme import blocks

pytestmark = pytest.mark.registry

CORE = ("hydra-core==1.3.*", "omegaconf==2.3.*", "rich", "nvidia-ml-py", "psutil")
MOST_BYTES = 4_000_000
PLAN = ("plan", "gpu=h200", "model=gpt_oss", "random_seed=42")
HEAD = "1 of 8 x h200"
# Where a preset's value came from is shown the same way, wherever the presets lie.
PLACE = "  conf/model/gpt_oss"


def test_the_wheel_holds_the_package_its_presets_and_its_plugin_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
    presets = {f"sglang_hydra/{path.relative_to(REPOSITORY)}" for path in (REPOSITORY / "conf").rglob("*.yaml")}
    assert presets <= names
    assert {"sglang_hydra/py.typed", "hydra_plugins/sglang_hydra/search_path.py"} <= names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"sglang_hydra", "hydra_plugins"}
    assert "hydra_plugins/__init__.py" not in names, "other plugins share this namespace"
    data = (
        "sglang_hydra/releases/recorded_answers/",
        "sglang_hydra/releases/refusals/",
        "sglang_hydra/fit/forecast_measured.jsonl.gz",
    )
    others = {name for name in names if not name.startswith(data)}
    assert [name for name in others if "test" in name or name.endswith((".pyc", ".gz", ".jsonl"))] == []
    assert built.wheel.stat().st_size < MOST_BYTES


def test_the_sdist_can_be_tested(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {
        "Makefile",
        "constraints.txt",
        "serve.py",
        "README.md",
        "LICENSE",
        "tests/test_readme.py",
        "multirun/README.md",
    }
    assert wanted <= names
    assert [name for name in names if name.endswith(".pyc") or name.startswith((".venv", ".git/"))] == []


def test_the_wheel_plans_from_another_folder(installed: Environment, tmp_path: Path) -> None:
    printed = run(installed.command, *PLAN, cwd=tmp_path)
    assert HEAD in printed
    assert PLACE in printed
    assert list(tmp_path.iterdir()) == [], "a plan writes nothing"


def test_an_editable_install_plans(tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "editable", "--editable", REPOSITORY)
    assert PLACE in run(environment.command, *PLAN, cwd=tmp_path)


def test_a_bare_checkout_plans_with_only_its_dependencies_installed(tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "bare", *CORE)
    assert PLACE in run(environment.python, REPOSITORY / "serve.py", *PLAN, cwd=tmp_path)


def test_uvx_runs_the_wheel(built: Built, tmp_path: Path) -> None:
    assert PLACE in run_uv("tool", "run", "--quiet", "--from", built.wheel, "sglang-hydra", *PLAN, cwd=tmp_path)


def test_the_first_commands_of_the_readme_work_in_a_clone(tmp_path: Path) -> None:
    """As typed, in order, by an environment's own pip."""
    venv.create(tmp_path / "venv", with_pip=True)
    path = f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin"
    assert blocks("run: package")
    for block in blocks("run: package"):
        assert HEAD in run("bash", "-euo", "pipefail", "-c", block.text, cwd=REPOSITORY, PATH=path)
