"""Determines the arguments that verl passes to ``ServerArgs`` from its rollout and model nodes and on its own; the
values that it refuses; and the keys that never reach SGLang.

verl builds one dictionary: its own arguments, then ``engine_kwargs.sglang`` over them, then arguments of features that
are enabled elsewhere (LoRA, Prometheus, multi-token prediction, ...), which nobody can override.

Source: verl-project/verl@00c3c04 verl/workers/rollout/sglang_rollout/async_sglang_server.py (SGLangHttpServer
.launch_server, SGLangReplica.launch_servers) and utils.py; @065ef9b verl/workers/rollout/replica.py (sizes, nodes);
@005f273 verl/trainer/config/rollout/rollout.yaml and verl/workers/config/rollout.py (the defaults, and the refusals of
``RolloutConfig.__post_init__``)."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings
from sglang_hydra.convert.frameworks.adapters import ADAPTERS
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject, json_beside
from sglang_hydra.text.words import is_digits

OF_ITS_OWN = "verl itself"

# The rollout's defaults, for trees of releases that lack a key.
_DEFAULTS: JsonObject = json_beside(__file__)
_OF_ITS_OWN: JsonObject = _DEFAULTS["of its own"]
# Block-wise FP8 for another checkpoint: quantized at loading and at each weight update.
_FP8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}


@dataclass(frozen=True)
class Passed:
    """An argument that verl passes. ``place`` is its key in verl's tree; a ``final`` one is set after ``engine_kwargs``
    and overrides them."""

    value: Any
    place: str
    final: bool = False


@dataclass(frozen=True)
class Tree:
    """verl's composed tree, read key by key, because interpolations elsewhere may not resolve yet. ``at`` is the node
    that contains ``rollout`` and ``model``."""

    config: Any
    at: str

    def get(self, key: str, default: object = None) -> Any:
        """Returns the value at ``key`` below ``at`` as plain containers, or ``default``."""
        return self.select(f"{self.at}.{key}", default)

    def select(self, key: str, default: Any = None) -> Any:
        """Returns the value at a key of the whole tree. Raises ConfigError for an unresolvable interpolation."""
        with hydra_errors_as_findings():
            value = OmegaConf.select(self.config, key, default=default, throw_on_missing=False)
            return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value

    def rollout(self, key: str) -> Any:
        """Returns a key of the rollout node, or verl's default for it."""
        if key == "n_gpus_per_node" and self.get(f"rollout.{key}") is None:
            return self.select(f"trainer.{key}", _DEFAULTS[key])
        return self.get(f"rollout.{key}", _DEFAULTS.get(key))

    def place(self, *keys: str) -> str:
        return ", ".join(f"{self.at}.{key}" for key in keys)

    @property
    def ranks(self) -> int:
        """Returns the GPUs of one server: tensor times data parallel size."""
        return int(self.rollout("tensor_model_parallel_size")) * int(self.rollout("data_parallel_size"))

    @property
    def gpus_of_node(self) -> int:
        """Returns the GPUs that one server sees on each of its nodes."""
        return max(1, min(int(self.rollout("n_gpus_per_node")), self.ranks))

    @property
    def lora_rank(self) -> int:
        return max(int(self.get(f"model.{key}", 0) or 0) for key in ("lora_rank", "lora.rank"))


def passed(tree: Tree, version: str, vendor: str, knows: Collection[str]) -> dict[str, Passed]:
    """Returns every argument that verl passes to SGLang ``version`` on GPUs of ``vendor``; ``knows`` are that
    release's."""
    return {**dict(_first(tree, version, vendor)), **dict(_last(tree, knows))}


def _first(tree: Tree, version: str, vendor: str) -> Iterator[tuple[str, Passed]]:
    """Yields the arguments that ``engine_kwargs`` can override."""

    for name, value in _OF_ITS_OWN.items():
        yield name, Passed(value, OF_ITS_OWN)
    for name, whole in ADAPTERS["verl"].keys.items():
        key = whole.removeprefix("actor_rollout_ref.")
        value = tree.get(key, _DEFAULTS.get(key.rpartition(".")[2]))
        if name == "model_path" and isinstance(value, str):
            value = os.path.expanduser(value)  # what HDFS has is known only at startup
        yield name, Passed(value, tree.place(key))
    sizes = tree.place("rollout.tensor_model_parallel_size", "rollout.data_parallel_size")
    yield "tp_size", Passed(tree.ranks, sizes)
    yield "nnodes", Passed(tree.ranks // tree.gpus_of_node or 1, tree.place("rollout.n_gpus_per_node"))
    backend = "aiter" if vendor == "amd" else "flashinfer" if at_least(version, "0.5.12") else "fa3"
    yield "attention_backend", Passed(backend, OF_ITS_OWN)
    override = {"quantization_config": _FP8} if tree.rollout("quantization") == "fp8" else {}
    yield "json_model_override_args", Passed(json.dumps(override), tree.place("rollout.quantization"))


def _last(tree: Tree, knows: Collection[str]) -> Iterator[tuple[str, Passed]]:
    """Yields the arguments that override ``engine_kwargs``."""

    def final(name: str, value: object, key: str) -> tuple[str, Passed]:
        return name, Passed(value, tree.place(key), final=True)

    if tree.lora_rank and not tree.get("model.lora.merge", False):
        rank = "model.lora.rank" if tree.get("model.lora.rank", 0) else "model.lora_rank"
        modules = tree.get("model.target_modules", "all-linear")
        yield final("enable_lora", True, rank)
        yield final("max_lora_rank", tree.lora_rank, rank)
        yield final("lora_target_modules", ["all"] if modules == "all-linear" else modules, "model.target_modules")
    if tree.rollout("prometheus.enable"):
        if name := tree.rollout("prometheus.served_model_name"):
            yield final("served_model_name", str(name).rpartition("/")[2], "rollout.prometheus.served_model_name")
        yield final("enable_metrics", True, "rollout.prometheus.enable")
    if "enable_weights_cpu_backup" in knows:
        shares_gpus = bool(tree.get("hybrid_engine", True)) and not tree.rollout("nnodes")
        yield final("enable_weights_cpu_backup", shares_gpus or tree.lora_rank > 0, "hybrid_engine")
    if tree.rollout("enable_rollout_routing_replay"):
        yield final("enable_return_routed_experts", True, "rollout.enable_rollout_routing_replay")
    if tree.rollout("mtp.enable") and tree.rollout("mtp.enable_rollout"):
        for key in ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens"):
            key = f"mtp.speculative_{key}"
            yield final(key.removeprefix("mtp."), tree.rollout(key), f"rollout.{key}")
        for name in ("enable_weights_cpu_backup", "enable_draft_weights_cpu_backup"):
            yield final(name, True, "rollout.mtp.enable_rollout")


_SIZES = ("tensor_model_parallel_size", "data_parallel_size", "expert_parallel_size", "pipeline_model_parallel_size")


def unplannable(tree: Tree) -> list[Finding]:
    """Returns the errors that prevent planning: no rollout, another engine, invalid sizes."""
    rollout = tree.get("rollout")
    if not isinstance(rollout, dict) or not isinstance(tree.get("model"), dict):
        message = f"{tree.at} has no rollout and model nodes: this is not verl's tree"
        return [Finding("error", "VRL001", message, (tree.at,), "plan_rollout(config, at='actor_rollout_ref')")]
    found = []
    name = tree.get("rollout.name", "sglang")
    if name != "sglang":
        key = tree.place("rollout.name")
        message = f"{key}={name}: engine_kwargs.sglang is read by verl's SGLang rollout only"
        found.append(Finding("error", "VRL001", message, (key,), f"{key}=sglang"))
    if not tree.get("model.path"):
        key = tree.place("model.path")
        found.append(Finding("error", "VRL001", f"{key}: no model is named", (key,), f"{key}=org/name"))
    for size in (*_SIZES, "n_gpus_per_node"):
        value = tree.rollout(size)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            key = tree.place(f"rollout.{size}")
            meant = value if isinstance(value, str) and is_digits(value) and int(value) else 1
            found.append(Finding("error", "VRL001", f"{key}={value!r} is no number of GPUs", (key,), f"{key}={meant}"))
    return found


def refused(tree: Tree, version: str) -> Iterator[Finding]:
    """Yields the errors that verl raises in its workers, when it builds the rollout."""

    def refusal(key: str, message: str, hint: str) -> Finding:
        return Finding("error", "VRL004", f"verl refuses {tree.place(key)}={tree.get(key)}: {message}", (), hint)

    if tree.rollout("pipeline_model_parallel_size") > 1:
        key = "rollout.pipeline_model_parallel_size"
        yield refusal(key, "its SGLang rollout has no pipeline parallelism", f"{tree.place(key)}=1")
    experts = tree.rollout("expert_parallel_size")
    if experts not in (1, tree.ranks):
        key = "rollout.expert_parallel_size"
        sizes = "tensor_model_parallel_size times data_parallel_size"
        yield refusal(key, f"1 or {tree.ranks}, which is {sizes}", f"{tree.place(key)}={tree.ranks}")
    if tree.ranks % tree.gpus_of_node:
        key = "rollout.n_gpus_per_node"
        message = f"a server of {tree.ranks} GPUs does not fill nodes of {tree.gpus_of_node}"
        yield Finding("error", "VRL004", f"verl refuses {tree.place(key)}: {message}", ())
    quantization = tree.rollout("quantization")
    if quantization not in (None, "fp8"):
        yield refusal("rollout.quantization", "fp8 is the one that it knows", f"{_node(tree)}.quantization=...")
    if quantization == "fp8" and not at_least(version, "0.5.5"):
        yield refusal("rollout.quantization", f"it takes SGLang 0.5.5, and this is {version}", _since(tree, "0.5.5"))
    if tree.rollout("mtp.enable") and tree.rollout("mtp.enable_rollout") and not at_least(version, "0.5.6"):
        key = "rollout.mtp.enable_rollout"
        yield refusal(key, f"it takes SGLang 0.5.6, and this is {version}", _since(tree, "0.5.6"))
    modules = tree.get("model.target_modules", "all-linear")
    if tree.lora_rank and isinstance(modules, str) and modules != "all-linear":
        yield refusal("model.target_modules", "SGLang takes names of modules", "a list of names, or all-linear")


def unread(tree: Tree, set_here: Mapping[str, object]) -> Iterator[Finding]:
    """Yields warnings for set keys of the rollout node that verl's SGLang rollout does not pass on."""
    for key, (default, argument) in _DEFAULTS["unread"].items():  # with SGLang's names
        value = tree.get(f"rollout.{key}", default)
        if value != default and argument not in set_here:
            place = tree.place(f"rollout.{key}")
            message = f"{place}={value} does not reach SGLang: verl passes it to its other engines only"
            yield Finding("warning", "VRL005", message, (argument,), f"{_node(tree)}.{argument}=...")
    if tree.get("rollout.disaggregation.enabled", False):
        message = f"{tree.place('rollout.disaggregation')}: planned is a server without a role, not prefill and decode"
        yield Finding("warning", "VRL005", message, ("disaggregation_mode",))


def unlike(tree: Tree, plan: Plan) -> Iterator[Finding]:
    """Yields findings that need the finished plan."""
    layout = plan.layout
    if layout.copies > 1:
        message = (
            f"verl gives a server {tree.ranks} GPUs, and without DP attention tp_size={layout.tp} times "
            f"dp_size={layout.copies} takes {layout.tp * layout.copies}"
        )
        hint = f"{_node(tree)}.enable_dp_attention=true", f"{tree.place('rollout.data_parallel_size')}=1"
        yield Finding("error", "VRL006", message, ("enable_dp_attention", "dp_size"), hint)
    config = plan.model.config or {}
    text = config.get("text_config")
    longest = (text if isinstance(text, Mapping) else config).get("max_position_embeddings")
    wanted = tree.get("rollout.max_model_len")
    if isinstance(wanted, int) and isinstance(longest, int) and wanted > longest:
        key = tree.place("rollout.max_model_len")
        message = f"verl refuses {key}={wanted}: the model has {longest}"
        yield Finding("error", "VRL004", message, (), f"{key}={longest}")


def _node(tree: Tree) -> str:
    return tree.place("rollout.engine_kwargs.sglang")


def _since(tree: Tree, version: str) -> str:
    return f"{_node(tree)}.engine.version={version}"
