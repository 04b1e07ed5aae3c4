"""Other Hydra apps in the same environment: those that do not use this package notice nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.conftest import Environment, run

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
@sglang_hydra.main
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
    printed = run(installed.python, "app.py", "model=deepsek_v3", cwd=write(RELATED, tmp_path), exits=1)
    assert "deepseek_v3" in printed, "Hydra lists the options, ours among them"
