"""An app with two servers, each under a node of its own: both are planned, refused and swept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plans import written
from tests.run.test_app_main import ended, jobs

APP = """\
import json

import hydra
import sglang_hydra


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
@sglang_hydra.main
def run(config, plans):
    shown = {node: [plan.gpu.name, plan.values["tp_size"], plan.launchable] for node, plan in plans.items()}
    print("PLANNED " + json.dumps({"rounds": config.rounds, **shown}))


if __name__ == "__main__":
    run()
"""
FILES = {
    "app.py": APP,
    "conf/config.yaml": """\
defaults:
  - /sglang_hydra@prefill
  - /sglang_hydra@serve.decode
  - override /gpu@prefill.gpu: h100
  - override /model@prefill.model: qwen3_8b
  - override /gpu@serve.decode.gpu: h200
  - override /model@serve.decode.model: qwen3_8b
  - _self_
rounds: 3
prefill: {tp_size: 2}
serve: {decode: {tp_size: 4}}
""",
}


@pytest.fixture
def app(tmp_path: Path) -> Path:
    written(tmp_path, FILES)
    return tmp_path


def test_the_task_gets_the_plan_of_each_node(app: Path) -> None:
    [plans] = jobs(app, "serve.decode.tp_size=8", "gpu@prefill.gpu=b200")
    assert plans == {"rounds": 3, "prefill": ["b200", 2, True], "serve.decode": ["h200", 8, True]}


@pytest.mark.corpus
@pytest.mark.parametrize("node", ["prefill", "serve.decode"])
def test_a_server_that_cannot_be_launched_ends_the_run_before_the_task(node: str, app: Path) -> None:
    code, shown = ended(app, [f"{node}.tp_size=16"])
    assert code == 2
    assert "PLANNED" not in shown
    assert f"{node}.tp_size=8" in shown


def test_a_task_for_one_plan_is_an_error_and_not_a_server_forgotten(app: Path) -> None:
    written(app, {"app.py": APP.replace("(config, plans)", "(config, plan)")})
    code, shown = ended(app, [])
    assert (code, "CLI032" in shown, "prefill, serve.decode" in shown) == (2, True, True)


@pytest.mark.thorough
def test_a_sweep_leaves_out_the_points_that_either_server_refuses(app: Path) -> None:
    words = ["-m", "hydra/sweeper=sglang", "prefill.tp_size=2,16", "serve.decode.tp_size=4,16"]
    found: list[dict[str, Any]] = jobs(app, *words)
    assert [(one["prefill"][1], one["serve.decode"][1]) for one in found] == [(2, 4)]


def test_one_server_is_a_mapping_too_where_plans_are_asked_for(app: Path) -> None:
    config = "defaults:\n  - /sglang_hydra@server\n  - override /gpu@server.gpu: h200\n"
    config += "  - override /model@server.model: qwen3_8b\n  - _self_\nrounds: 1\n"
    written(app, {"conf/config.yaml": config})
    assert json.dumps(jobs(app)) == json.dumps([{"rounds": 1, "server": ["h200", 1, True]}])
