"""``init``: the repo that it writes runs, its check plans every experiment, and nothing there is overwritten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sglang_hydra.cli.main import entry


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "app.py", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=os.environ)


def test_the_new_repo_plans_and_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my repo"
    assert entry(["init", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert f"cd '{folder}'" in printed
    assert "python app.py -m +sweep=tp_size" in printed
    assert "sglang-hydra" in (folder / "requirements.txt").read_text()

    swept = _run(folder, "-m", "+sweep=tp_size", "hydra.sweep.dir=swept")
    assert (swept.returncode, swept.stderr) == (0, "")
    plans = [json.loads(file.read_text()) for file in sorted((folder / "swept").glob("*/plan.json"))]
    assert [plan["values"]["tp_size"] for plan in plans] == [1, 2, 4]


@pytest.mark.thorough
def test_its_check_plans_every_experiment_and_refuses_a_bad_one(tmp_path: Path) -> None:
    assert entry(["init", str(tmp_path)]) == 0
    steps = yaml.safe_load((tmp_path / ".github/workflows/check.yml").read_text())["jobs"]["check"]["steps"]
    assert 'python app.py -m "+experiment=glob(*)"' in [step.get("run") for step in steps]

    bad = tmp_path / "conf/experiment/bad.yaml"
    bad.write_text("# @package serving.sglang\ntp_size: 3\n")
    judged = _run(tmp_path, "-m", "+experiment=glob(*)")
    assert judged.returncode == 2
    assert "tp_size" in judged.stderr
    bad.unlink()
    judged = _run(tmp_path, "-m", "+experiment=glob(*)")
    assert judged.returncode == 0
    assert judged.stdout.count("sglang.launch_server") == 2


def test_a_folder_with_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app.py").write_text("mine")
    assert entry(["init", str(tmp_path)]) == 2
    assert "CLI040" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["app.py"]
    assert (tmp_path / "app.py").read_text() == "mine"


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--force"]])
def test_it_takes_one_folder(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["init", *words]) == 2
    assert "init" in capsys.readouterr().err
