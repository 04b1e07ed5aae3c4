"""Patterns of Hydra's documentation in an app with ``@sglang_hydra.main``: structured configs, instantiate, packaging,
several options of a group, specializing, write protection, logging, HYDRA_FULL_ERROR."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plans import written
from tests.run.test_app_habits import REPOSITORY, SMALL, ran

APP = """\
import dataclasses
import logging
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.utils import instantiate
from omegaconf import OmegaConf
import sglang_hydra


@dataclasses.dataclass
class Trainer:
    epochs: int = 3


@dataclasses.dataclass
class Train:
    trainer: Trainer = dataclasses.field(default_factory=Trainer)
    algorithm: Any = None
    callbacks: Any = None
    made: Any = None
    server: Any = None


ConfigStore.instance().store(name="base_train", node=Train)
ConfigStore.instance().store(group="trainer", name="long", node=Trainer(epochs=100))


def protected(task):
    def with_protection(config):
        OmegaConf.set_readonly(config, True)
        return task(config)
    return with_protection


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
@protected
@sglang_hydra.main
def run(config, plan):
    logging.getLogger("lab").info("logged %s", plan.values["tp_size"])
    print("TASK", config.trainer.epochs, sorted(config.callbacks), instantiate(config.made), plan.gpu.name)


if __name__ == "__main__":
    run()
"""
TREE = {
    "app.py": APP,
    "configs/train.yaml": """\
defaults:
  - base_train
  - /sglang_hydra@server
  - algorithm: ppo
  - callbacks: [early, late]
  - optional special: ${algorithm}
  - override /gpu@server.gpu: h200
  - override /model@server.model: qwen3_8b
  - _self_
made: {_target_: builtins.dict, tp: "${server.tp_size}"}
server: {tp_size: 2}
""",
    "configs/longer.yaml": "defaults: [train, _self_]\nserver: {context_length: 4096, tp_size: 4}\n",
    "configs/algorithm/ppo.yaml": "name: ppo\n",
    "configs/algorithm/dpo.yaml": "name: dpo\n",
    "configs/callbacks/early.yaml": "early: {patience: 1}\n",
    "configs/callbacks/late.yaml": "late: {patience: 2}\n",
    "configs/special/dpo.yaml": "# @package _global_\ntrainer: {epochs: 5}\n",
}


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], "TASK 3 ['early', 'late'] {'tp': 2} h200"),
        (["callbacks=[late]"], "TASK 3 ['late'] {'tp': 2} h200"),
        (["algorithm=dpo"], "TASK 5 ['early', 'late'] {'tp': 2} h200"),
        (["+trainer=long", "server.tp_size=1"], "TASK 100 ['early', 'late'] {'tp': 1} h200"),
        (["--config-name", "longer"], "TASK 3 ['early', 'late'] {'tp': 4} h200"),
    ],
    ids=["schema", "several options", "specialized", "an option in the ConfigStore", "an extended config"],
)
def test_structured_configs_and_patterns_compose(words: list[str], shown: str, tmp_path: Path) -> None:
    out, _ = ran(written(tmp_path, TREE), *words)
    assert shown in out


def test_the_apps_own_schema_refuses_a_wrong_value(tmp_path: Path) -> None:
    _, err = ran(written(tmp_path, TREE), "trainer.epochs=many", code=1)
    assert "trainer.epochs" in err
    assert "'many'" in err


@pytest.mark.thorough
def test_what_the_task_logs_is_in_the_file_of_the_run(tmp_path: Path) -> None:
    ran(written(tmp_path, TREE), "hydra.run.dir=here")
    assert "[lab][INFO] - logged 2" in (tmp_path / "here" / "app.log").read_text()
    _, err = ran(tmp_path, "hydra.run.dir=silent", "hydra/job_logging=disabled")
    assert not (tmp_path / "silent" / "app.log").exists()
    assert "logged" not in err


@pytest.mark.thorough
def test_hydra_full_error_shows_the_traceback_of_the_task_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    folder = written(tmp_path, {**SMALL, "app.py": SMALL["app.py"].replace("    pass\n", "    1 / 0\n")})
    _, err = ran(folder, code=1)
    assert "ZeroDivisionError" in err
    _, err = ran(folder, "tp_size=3", code=2)
    assert "CFG004" in err
    assert "Traceback" not in err


@pytest.mark.thorough
def test_an_app_in_a_package_is_started_as_a_module(tmp_path: Path) -> None:
    app = SMALL["app.py"].replace('config_path="configs"', 'config_path="pkg://lab.configs"')
    files = {"lab/__init__.py": "", "lab/app.py": app, "lab/configs/__init__.py": ""}
    written(tmp_path, {**files, "lab/configs/train.yaml": SMALL["configs/train.yaml"]})
    path = os.pathsep.join((str(tmp_path), str(REPOSITORY)))
    command = [sys.executable, "-m", "lab.app", "tp_size=4"]
    env = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert "HAS tp_size 4" in done.stdout


def test_a_search_path_in_the_primary_config_is_searched(tmp_path: Path) -> None:
    config = SMALL["configs/train.yaml"].replace("gpu: h200", "gpu: mine")
    config += "hydra: {searchpath: ['file://${oc.env:SHARED}']}\n"
    written(tmp_path, {**SMALL, "configs/train.yaml": config, "shared/gpu/mine.yaml": "defaults: [h200]\n"})
    os.environ["SHARED"] = f"{tmp_path}/shared"
    try:
        out, _ = ran(tmp_path)
    finally:
        del os.environ["SHARED"]
    assert "HAS tp_size 2" in out
