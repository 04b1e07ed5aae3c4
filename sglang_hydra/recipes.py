"""Published launch configurations, ready to plan: ``recipe=ID`` with anything on top.

They lie in one data file, conf/recipes.json, and become options of the config group ``recipe`` when they are asked
for; a folder conf/recipe/ of one's own adds YAML options beside them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sglang_hydra.config import conf_dir
from sglang_hydra.fields import FIELDS

GROUP = "recipe"

# What the sources call a checkpoint, as the quantization_config that such a checkpoint has. None: not quantized.
_CHECKPOINTS: Mapping[str, Mapping[str, Any] | None] = {
    "bf16": None,
    "fp8": {"quant_method": "fp8"},
    "fp4": {"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"},
}
# Checkpoints that a recipe names by path alone, with the format that the name stands for.
_CHECKPOINT_OF_PATH: Mapping[str, Mapping[str, Any]] = {
    "cognitivecomputations/DeepSeek-R1-AWQ": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True},
    "meituan/DeepSeek-R1-Block-INT8": {"quant_method": "blockwise_int8", "weight_block_size": [128, 128]},
    "meituan/DeepSeek-R1-Channel-INT8": {"quant_method": "w8a8_int8"},
}


@dataclass(frozen=True)
class Recipe:
    """One published configuration. ``gpus`` counts the GPUs of all ``nodes`` together; ``version`` is the SGLang that
    its source writes it for; ``checkpoint`` what the source calls the weights (bf16, fp8, fp4), where it says so."""

    id: str
    model: str
    gpu: str
    gpus: int
    nodes: int
    args: Mapping[str, Any]
    version: str
    source: str
    env: Mapping[str, str] = field(default_factory=dict)
    scenario: str | None = None
    checkpoint: str | None = None
    note: str | None = None

    @property
    def unknown_args(self) -> tuple[str, ...]:
        """Arguments of a later SGLang that 0.5.2 does not have."""
        return tuple(name for name in self.args if name not in FIELDS)

    @property
    def node(self) -> dict[str, Any]:
        """The recipe as a config: its hardware and model as choices, its arguments at the root."""
        model: dict[str, Any] = {}
        path: str | None = self.args.get("model_path")
        if path is not None:
            # The same architecture in another format: the preset's facts hold but for the quantization.
            model["model_path"] = path
        if path is not None and path in _CHECKPOINT_OF_PATH:
            model["config"] = {"quantization_config": dict(_CHECKPOINT_OF_PATH[path])}
        elif self.checkpoint is not None and (path is not None or self.checkpoint == "bf16"):
            stored = _CHECKPOINTS[self.checkpoint]
            model["config"] = {"quantization_config": dict(stored) if stored else None}
        args = {name: value for name, value in self.args.items() if name in FIELDS}
        if self.nodes > 1:
            args.setdefault("nnodes", self.nodes)
        return {
            "defaults": [{"override /gpu": self.gpu}, {"override /model": self.model}],
            **args,
            **({"model": model} if model else {}),
            **({"engine": {"env": dict(self.env)}} if self.env else {}),
        }


@lru_cache(maxsize=1)
def recipes() -> Mapping[str, Recipe]:
    """Every published configuration by its id. Raises OSError or ValueError for a broken installation."""
    content = json.loads((conf_dir() / "recipes.json").read_text(encoding="utf-8"))
    return {id: Recipe(id=id, **record) for id, record in content.items()}


def register(id: str) -> None:
    """Makes one recipe an option that Hydra finds; for an unknown id nothing happens."""
    from hydra.core.config_store import ConfigStore

    recipe = recipes().get(id)
    store = ConfigStore.instance()
    if recipe is not None and f"{id}.yaml" not in store.repo.get(GROUP, {}):
        store.store(group=GROUP, name=id, node=recipe.node, package="_global_", provider="sglang_hydra")
