"""What verl itself passes to ``ServerArgs``: from its rollout and model nodes, and of its own accord.

verl builds one dictionary: its own arguments, then everything of ``engine_kwargs.sglang`` over them, then what depends
on features that are switched on elsewhere (LoRA, Prometheus, multi-token prediction, ...), which nobody can override.

Source: verl-project/verl@00c3c04 verl/workers/rollout/sglang_rollout/async_sglang_server.py (SGLangHttpServer
.launch_server, SGLangReplica.launch_servers) and utils.py; @065ef9b verl/workers/rollout/replica.py (sizes, nodes);
@005f273 verl/trainer/config/rollout/rollout.yaml and verl/workers/config/rollout.py (the defaults).
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings
from sglang_hydra.convert.frameworks.adapters import ADAPTERS
from sglang_hydra.text.json_types import json_beside

OF_ITS_OWN = "verl itself"

# The rollout's defaults, for trees of releases that lack a key.
_DEFAULTS: Mapping[str, Any] = json_beside(__file__)
_OF_ITS_OWN: Mapping[str, Any] = _DEFAULTS["of its own"]
# Block-wise FP8 for a checkpoint that is none: quantized as it is loaded, and at each update of the weights.
_FP8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}


@dataclass(frozen=True)
class Passed:
    """One argument that verl passes itself. ``place`` is the key of verl's tree that it comes from; what is set after
    ``engine_kwargs`` is ``final`` and wins over them."""

    value: Any
    place: str
    final: bool = False


@dataclass(frozen=True)
class Tree:
    """verl's composed tree, read key by key: an interpolation elsewhere in it may lead nowhere yet. ``at`` is the node
    that holds ``rollout`` and ``model``."""

    config: Any
    at: str

    def get(self, key: str, default: Any = None) -> Any:
        """The value at ``key`` below ``at`` as plain containers; ``default`` where there is none."""
        return self.select(f"{self.at}.{key}", default)

    def select(self, key: str, default: Any = None) -> Any:
        """The same for a key of the whole tree. Raises ConfigError where an interpolation leads nowhere."""
        from omegaconf import OmegaConf

        with hydra_errors_as_findings():
            value = OmegaConf.select(self.config, key, default=default, throw_on_missing=False)
            return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value

    def rollout(self, key: str) -> Any:
        """A key of the rollout node, or verl's default for it."""
        if key == "n_gpus_per_node" and self.get(f"rollout.{key}") is None:
            return self.select(f"trainer.{key}", _DEFAULTS[key])
        return self.get(f"rollout.{key}", _DEFAULTS.get(key))

    def place(self, *keys: str) -> str:
        return ", ".join(f"{self.at}.{key}" for key in keys)

    @property
    def ranks(self) -> int:
        """GPUs of one server: tensor times data parallel."""
        return int(self.rollout("tensor_model_parallel_size")) * int(self.rollout("data_parallel_size"))

    @property
    def gpus_of_node(self) -> int:
        """GPUs that one server sees on each of its nodes."""
        return max(1, min(int(self.rollout("n_gpus_per_node")), self.ranks))

    @property
    def shares_gpus(self) -> bool:
        """Whether the trainer lives on the same GPUs (verl's hybrid mode)."""
        return bool(self.get("hybrid_engine", True)) and not self.rollout("nnodes")

    @property
    def lora_rank(self) -> int:
        return max(int(self.get(f"model.{key}", 0) or 0) for key in ("lora_rank", "lora.rank"))


def passed(tree: Tree, version: str, vendor: str, knows: Collection[str]) -> dict[str, Passed]:
    """Every argument that verl passes to SGLang ``version`` on GPUs of ``vendor``; ``knows`` are that release's."""
    return {**dict(_first(tree, version, vendor)), **dict(_last(tree, knows))}


def _first(tree: Tree, version: str, vendor: str) -> Iterator[tuple[str, Passed]]:
    """Yields the arguments that ``engine_kwargs`` can override."""

    for name, value in _OF_ITS_OWN.items():
        yield name, Passed(value, OF_ITS_OWN)
    for name, whole in ADAPTERS["verl"].keys.items():
        key = whole.removeprefix("actor_rollout_ref.")
        value = tree.get(key, _DEFAULTS.get(key.rpartition(".")[2]))
        yield name, Passed(local_path(value) if name == "model_path" else value, tree.place(key))
    sizes = tree.place("rollout.tensor_model_parallel_size", "rollout.data_parallel_size")
    yield "tp_size", Passed(tree.ranks, sizes)
    yield "nnodes", Passed(tree.ranks // tree.gpus_of_node or 1, tree.place("rollout.n_gpus_per_node"))
    yield "attention_backend", Passed(_attention_backend(version, vendor), OF_ITS_OWN)
    override = {"quantization_config": _FP8} if tree.rollout("quantization") == "fp8" else {}
    yield "json_model_override_args", Passed(json.dumps(override), tree.place("rollout.quantization"))


def _last(tree: Tree, knows: Collection[str]) -> Iterator[tuple[str, Passed]]:
    """Yields the arguments that win over ``engine_kwargs``."""
    if tree.lora_rank and not tree.get("model.lora.merge", False):
        place = tree.place("model.lora.rank" if tree.get("model.lora.rank", 0) else "model.lora_rank")
        modules = tree.get("model.target_modules", "all-linear")
        yield "enable_lora", Passed(True, place, final=True)
        yield "max_lora_rank", Passed(tree.lora_rank, place, final=True)
        yield (
            "lora_target_modules",
            Passed(["all"] if modules == "all-linear" else modules, tree.place("model.target_modules"), final=True),
        )
    if tree.rollout("prometheus.enable"):
        name = tree.rollout("prometheus.served_model_name")
        if name:
            place = tree.place("rollout.prometheus.served_model_name")
            yield "served_model_name", Passed(str(name).rpartition("/")[2], place, final=True)
        yield "enable_metrics", Passed(True, tree.place("rollout.prometheus.enable"), final=True)
    if "enable_weights_cpu_backup" in knows:
        wanted = tree.shares_gpus or tree.lora_rank > 0
        yield "enable_weights_cpu_backup", Passed(wanted, tree.place("hybrid_engine"), final=True)
    if tree.rollout("enable_rollout_routing_replay"):
        place = tree.place("rollout.enable_rollout_routing_replay")
        yield "enable_return_routed_experts", Passed(True, place, final=True)
    if tree.rollout("mtp.enable") and tree.rollout("mtp.enable_rollout"):
        for key in ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens"):
            name = f"speculative_{key}"
            yield name, Passed(tree.rollout(f"mtp.{name}"), tree.place(f"rollout.mtp.{name}"), final=True)
        for name in ("enable_weights_cpu_backup", "enable_draft_weights_cpu_backup"):
            yield name, Passed(True, tree.place("rollout.mtp.enable_rollout"), final=True)


def local_path(path: Any) -> Any:
    """Where verl looks for the model: a home folder spelled out. What lies in HDFS has its place only at start-up."""
    return os.path.expanduser(path) if isinstance(path, str) else path


def _attention_backend(version: str, vendor: str) -> str:
    """verl does not leave the choice to SGLang."""
    if vendor == "amd":
        return "aiter"
    return "flashinfer" if at_least(version, "0.5.12") else "fa3"
