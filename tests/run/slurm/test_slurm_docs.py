"""docs/slurm.md says what there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.settings.launch import SlurmNode
from sglang_hydra.text.locations import conf_dir
from tests.plans import planned, without_engines, written
from tests.run.slurm.running import ROOT

PAGE = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")


def test_every_setting_is_explained_and_has_its_default_in_the_preset() -> None:
    explained = re.findall(r"^\| `launch\.slurm\.(\w+)`", PAGE, re.MULTILINE)
    assert explained == [item.name for item in fields(SlurmNode)]
    preset = yaml.safe_load((conf_dir() / "launch" / "slurm.yaml").read_text(encoding="utf-8"))
    assert preset["slurm"] == vars(SlurmNode())


def test_the_job_of_the_page_can_be_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    command = re.search(r"sglang-hydra (gpu=h200 .* launch=slurm .*) \\\n +(.*)", PAGE)
    assert command is not None
    made = planned(*command[1].split(), *command[2].split())
    assert made.launchable
    assert made.nodes.launch.slurm.walltime == "4:00:00"


def test_a_cluster_of_ones_own_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    content = re.search(r"```yaml\n(# lab/launch/lab\.yaml.*?)```", PAGE, re.DOTALL)
    assert content is not None
    folder = written(tmp_path, {"launch/lab.yaml": content[1]})
    made = planned("gpu=h200", "model=qwen3_8b", "launch=lab", using=Composer([folder]))
    assert made.launchable, made.findings
    launch = made.nodes.launch
    assert (launch.name, launch.slurm.account, launch.slurm.mem) == ("slurm", "lab", "0")
    assert launch.slurm.walltime == "8:00:00"
