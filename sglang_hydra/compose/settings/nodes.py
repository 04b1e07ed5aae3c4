"""The nodes of a composition, typed: ``nodes.launch.slurm.gpus``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from sglang_hydra.compose.schema import EngineNode, FitNode, ForecastNode, GpuNode, LaunchNode, ModelNode
from sglang_hydra.compose.settings.bench import BenchNode
from sglang_hydra.compose.settings.sweep import SweepNode
from sglang_hydra.compose.settings.topology import SINGLE, TopologyNode
from sglang_hydra.text.findings import Finding

Node = TypeVar("Node")


class Nodes:
    """The root keys that are not arguments. ``plain`` has them as they were composed, for what walks keys, compares or
    writes them down; the properties have them as the dataclasses of the schema, made when they are first read."""

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self.plain = plain

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nodes) and self.plain == other.plain

    __hash__ = None  # type: ignore[assignment]

    def having(self, name: str, values: Mapping[str, object]) -> Nodes:
        """The same with other values in the node ``name``."""
        return Nodes({**self.plain, name: {**self.plain[name], **values}})

    @cached_property
    def gpu(self) -> GpuNode:
        return node_of(GpuNode, self.plain["gpu"])

    @cached_property
    def model(self) -> ModelNode:
        return node_of(ModelNode, self.plain["model"])

    @cached_property
    def engine(self) -> EngineNode:
        return node_of(EngineNode, self.plain["engine"])

    @cached_property
    def launch(self) -> LaunchNode:
        return node_of(LaunchNode, self.plain["launch"])

    @cached_property
    def fit(self) -> FitNode:
        return node_of(FitNode, self.plain["fit"])

    @cached_property
    def forecast(self) -> ForecastNode:
        return node_of(ForecastNode, self.plain["forecast"])

    @cached_property
    def bench(self) -> BenchNode:
        return node_of(BenchNode, self.plain["bench"])

    @cached_property
    def sweep(self) -> SweepNode:
        return node_of(SweepNode, self.plain["sweep"])

    @cached_property
    def topology(self) -> TopologyNode:
        return node_of(TopologyNode, self.plain["topology"])

    @property
    def replicas(self) -> int | None:
        count: int | None = self.plain["replicas"]
        return count

    @property
    def fabric(self) -> str | None:
        name: str | None = self.plain["fabric"]
        return name

    @property
    def lock(self) -> str | None:
        path: str | None = self.plain["lock"]
        return path

    @property
    def ignore(self) -> list[str]:
        ids: list[str] = self.plain["ignore"]
        return ids


def node_of(kind: Callable[..., Node], values: Mapping[str, Any]) -> Node:
    """``values`` as a dataclass of the schema, the nodes below it too; what they lack has its default."""
    kinds = _kinds(kind)
    return kind(
        **{
            name: node_of(kinds[name], value) if isinstance(value, Mapping) and is_dataclass(kinds[name]) else value
            for name, value in values.items()
            if name in kinds
        }
    )


@lru_cache(maxsize=32)
def _kinds(kind: Any) -> dict[str, Any]:
    return {item.name: item.type for item in fields(kind)}


def has_several_servers(nodes: Nodes) -> bool:
    """Whether these nodes ask for several servers behind a router."""
    return nodes.topology.name != SINGLE


def unused_replicas(nodes: Nodes) -> list[Finding]:
    """What is wrong with ``replicas`` where one server is planned: nothing would read it."""
    count = nodes.replicas
    if count is None or has_several_servers(nodes):
        return []
    message = f"replicas={count} is for several servers behind a router, and this is one server"
    return [Finding("error", "TOP001", message, ("replicas",), offers=f"topology=replicas replicas={count}")]
