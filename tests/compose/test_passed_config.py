"""``sglang_hydra.plan(config)`` with configs of Hydra's compose API, however they were treated since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import sglang_hydra
from tests.plans import written

ROOT = "defaults: [sglang_hydra_schema, gpu: h200, model: qwen3_8b, _self_]\ntp_size: 2\n"
MOUNTED = """\
defaults: ["/sglang_hydra@a.b", override /gpu@a.b.gpu: h200, override /model@a.b.model: qwen3_8b, _self_]
a: {b: {tp_size: 2}}
"""


def resolved(config: Any) -> Any:
    OmegaConf.resolve(config)
    return config


TREATED: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda config: config,
    "resolved": resolved,
    "copied": lambda config: config.copy(),
    "read again": lambda config: OmegaConf.create(OmegaConf.to_yaml(config)),
}


@pytest.mark.corpus
@pytest.mark.parametrize("treated", TREATED)
@pytest.mark.parametrize("primary", [ROOT, MOUNTED], ids=["root", "mounted"])
def test_a_composed_config_is_planned(primary: str, treated: str, tmp_path: Path) -> None:
    with initialize_config_dir(str(written(tmp_path, {"config.yaml": primary})), version_base=None):
        plan = sglang_hydra.plan(TREATED[treated](compose("config")))
    assert plan.intent == {"model_path": "Qwen/Qwen3-8B", "tp_size": 2}
    assert plan.gpu.name == "h200"


def test_what_was_changed_since_is_in_the_plan(tmp_path: Path) -> None:
    with initialize_config_dir(str(written(tmp_path, {"config.yaml": ROOT})), version_base=None):
        config = compose("config")
        config.tp_size, config.model.model_path = 4, "my-lab/other"
        plan = sglang_hydra.plan(config)
    assert plan.intent == {"model_path": "my-lab/other", "tp_size": 4}


def test_hydras_own_node_beside_it_is_left_alone(tmp_path: Path) -> None:
    """It holds values that only a job can tell."""
    with initialize_config_dir(str(written(tmp_path, {"config.yaml": ROOT})), version_base=None):
        plan = sglang_hydra.plan(compose("config", return_hydra_config=True))
    assert plan.intent["tp_size"] == 2


def test_the_schema_makes_objects_and_shows_no_secret(tmp_path: Path) -> None:
    with initialize_config_dir(str(written(tmp_path, {"config.yaml": ROOT})), version_base=None):
        made: Any = OmegaConf.to_object(compose("config", overrides=["api_key=hunter2"]))
    assert (made.model_path, made.gpu.name, made.tp_size) == ("Qwen/Qwen3-8B", "h200", 2)
    assert "hunter2" not in repr(made)
