"""Other Hydra apps in the same environment: those that do not use this package notice nothing of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.conftest import REPOSITORY, Environment, make_environment, run

pytestmark = pytest.mark.registry

# The groups of a training framework that also names its things model, engine and topology.
UNRELATED = {
    "app.py": """
import hydra
from omegaconf import OmegaConf

@hydra.main(version_base=None, config_path="config", config_name="trainer")
def train(config):
    print(OmegaConf.to_yaml(config))

train()
""",
    "config/trainer.yaml": """
defaults:
  - model: hf_model
  - engine: fsdp
  - topology: single
  - _self_
""",
    "config/model/hf_model.yaml": "path: org/base\n",
    "config/model/mcore_model.yaml": "path: org/mcore\n",
    "config/engine/fsdp.yaml": "strategy: fsdp\n",
    "config/engine/megatron.yaml": "strategy: megatron\n",
    "config/topology/single.yaml": "nodes: 1\n",
}

RELATED = {
    "app.py": """
import hydra
import sglang_hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
@sglang_hydra.main(strict=False)
def run(plan):
    assert isinstance(plan, sglang_hydra.Plan)
    print("PLANNED", plan.values["tp_size"], plan.choices["model"], plan.gpu.name, plan.launchable)

run()
""",
    "conf/config.yaml": """
defaults:
  - sglang_hydra_schema
  - gpu: h200
  - model: gpt_oss
  - engine: auto
  - launch: local
  - _self_
tp_size: 2
""",
    "conf/model/ours.yaml": "defaults: [qwen3_8b]\nname: ours\n",
}


VERLS = "examples/verl_rollout/verl_tree"

# What the unrelated app sees of the environment; its tree is verl's.
OF_VERLS_SHAPE = """
import json
import sys

import hydra
from omegaconf import OmegaConf

@hydra.main(version_base=None, config_path="verl_tree", config_name="ppo_trainer")
def train(config):
    print("SEEN", json.dumps([sorted(sys.modules), OmegaConf.to_container(config)]))

train()
"""

SEARCHING = {
    "app.py": """
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def run(config):
    print("GOT", config.server.gpu.name, config.server.tp_size, config.model.path)

run()
""",
    "conf/config.yaml": """
defaults:
  - model: own
  - /sglang_hydra@server
  - override /gpu@server.gpu: h200
  - _self_
hydra: {searchpath: [pkg://sglang_hydra.conf]}
""",
    "conf/model/own.yaml": "path: org/base\n",
}


def write(files: dict[str, str], folder: Path) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder


def planned(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line.startswith("PLANNED")]


def test_an_unrelated_app_lists_only_its_own_options(installed: Environment, tmp_path: Path) -> None:
    app = write(UNRELATED, tmp_path)
    printed = run(installed.python, "app.py", "--help", cwd=app)
    groups = printed.partition("== Configuration groups ==")[2].partition("== Config ==")[0]
    assert [line for line in groups.splitlines() if ": " in line] == [
        "engine: fsdp, megatron",
        "model: hf_model, mcore_model",
        "topology: single",
    ]
    assert "sglang" not in printed


def test_an_app_of_verls_shape_is_what_it_is_without_this_package(installed: Environment, tmp_path: Path) -> None:
    """The same --help, the same options, the same config; and nothing is imported but two small plugin files."""
    plain = make_environment(tmp_path / "plain", "hydra-core==1.3.*")
    shutil.copytree(REPOSITORY / VERLS, tmp_path / "verl_tree")
    write({"app.py": OF_VERLS_SHAPE}, tmp_path)

    def seen(environment: Environment) -> tuple[set[str], Any]:
        word = "actor_rollout_ref.rollout.name=sglang"
        printed = run(environment.python, "app.py", word, "hydra.run.dir=run", cwd=tmp_path)
        modules, config = json.loads(printed.partition("SEEN ")[2])
        return set(modules), config

    (without, before), (beside, after) = seen(plain), seen(installed)
    assert before == after
    assert {name for name in beside - without if "sglang" in name} == {
        "hydra_plugins.sglang_hydra",
        "hydra_plugins.sglang_hydra.search_path",
        "hydra_plugins.sglang_hydra.sweeper",
    }
    for words in (["--help"], ["--info", "searchpath"], ["model=deepseek_v3"], ["gpu=h200"]):
        exits = 0 if words[0].startswith("--") else 1
        told = [run(each.python, "app.py", *words, cwd=tmp_path, exits=exits) for each in (plain, installed)]
        assert told[0] == told[1], words


def test_an_app_that_searches_our_package_has_groups_and_schema_without_importing_it(
    installed: Environment, tmp_path: Path
) -> None:
    app = write(SEARCHING, tmp_path)
    assert run(installed.python, "app.py", "server.tp_size=4", cwd=app).strip() == "GOT h200 4 org/base"
    refusal = run(installed.python, "app.py", "server.tpsize=4", cwd=app, exits=1)
    assert "Key 'tpsize' not in 'Root'" in refusal


def test_the_rollout_example_runs_with_the_wheel(installed: Environment, tmp_path: Path) -> None:
    app = shutil.copytree(REPOSITORY / "examples" / "verl_rollout", tmp_path / "app")
    printed = run(installed.python, "train.py", cwd=app)
    assert 'engine_kwargs {"chunked_prefill_size": 16384, "page_size": 16}' in printed


@pytest.mark.parametrize("choice", ["model=deepseek_v3", "engine=sglang"])
def test_an_unrelated_app_refuses_our_options(choice: str, installed: Environment, tmp_path: Path) -> None:
    printed = run(installed.python, "app.py", choice, cwd=write(UNRELATED, tmp_path), exits=1)
    assert f"Could not find '{choice.replace('=', '/')}'" in printed
    assert "qwen3_8b" not in printed, "the options that it lists are the app's own"


def test_an_unrelated_app_composes_what_it_composed_before(installed: Environment, tmp_path: Path) -> None:
    printed = run(installed.python, "app.py", "model=mcore_model", cwd=write(UNRELATED, tmp_path))
    assert printed.strip() == "model:\n  path: org/mcore\nengine:\n  strategy: fsdp\ntopology:\n  nodes: 1"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], ["PLANNED 2 gpt_oss h200 True"]),
        (["tp_size=4", "gpu=b200"], ["PLANNED 4 gpt_oss b200 True"]),
        (["model=ours"], ["PLANNED 2 ours h200 True"]),
        (["gpu.count=1"], ["PLANNED 2 gpt_oss h200 False"]),
        (["-m", "tp_size=1,2,4"], [f"PLANNED {size} gpt_oss h200 True" for size in (1, 2, 4)]),
        (["-m", "model=ours,grok_1", "tp_size=8"], [f"PLANNED 8 {name} h200 True" for name in ("ours", "grok_1")]),
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_app_that_uses_the_package_gets_a_plan_in_every_job(
    overrides: list[str], expected: list[str], installed: Environment, tmp_path: Path
) -> None:
    printed = run(installed.python, "app.py", *overrides, cwd=write(RELATED, tmp_path))
    assert planned(printed) == expected


def test_an_app_that_uses_the_package_refuses_what_no_preset_is_named(installed: Environment, tmp_path: Path) -> None:
    printed = run(installed.python, "app.py", "model=deepsek_v3", cwd=write(RELATED, tmp_path), exits=2)
    assert "deepseek_v3" in printed, "Hydra lists the options, ours among them"
