"""The nodes of a composition, typed: ``nodes.launch.slurm.gpus``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sglang_hydra.compose.node_types import types_of
from sglang_hydra.compose.schema import ColocateNode, EngineNode, FitNode, ForecastNode, GpuNode, LaunchNode, ModelNode
from sglang_hydra.compose.settings.bench import BenchNode
from sglang_hydra.compose.settings.sweep import SweepNode
from sglang_hydra.compose.settings.topology import SINGLE, TopologyNode
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.compose.overrides import Request

Node = TypeVar("Node")


class _Of(Generic[Node]):
    """A root key as its dataclass, made at the first read; without ``kind`` the composed value."""

    def __init__(self, kind: Callable[..., Node] | None = None) -> None:
        self.kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, nodes: Nodes, owner: type) -> Node:
        value: Node = nodes.plain[self.name]
        if self.kind is not None:
            value = nodes.__dict__[self.name] = node_of(self.kind, nodes.plain[self.name])
        return value


class Nodes:
    """The root keys that are not arguments. ``plain`` has them as composed, to walk, compare or write; the other
    attributes are typed."""

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self.plain = plain

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nodes) and self.plain == other.plain

    __hash__ = None  # type: ignore[assignment]

    def having(self, name: str, values: Mapping[str, object]) -> Nodes:
        """Returns a copy with other values in the node ``name``."""
        return Nodes({**self.plain, name: {**self.plain[name], **values}})

    gpu = _Of(GpuNode)
    model = _Of(ModelNode)
    engine = _Of(EngineNode)
    launch = _Of(LaunchNode)
    fit = _Of(FitNode)
    colocate = _Of(ColocateNode)
    forecast = _Of(ForecastNode)
    bench = _Of(BenchNode)
    sweep = _Of(SweepNode)
    topology = _Of(TopologyNode)
    replicas = _Of[int | None]()
    fabric = _Of[str | None]()
    lock = _Of[str | None]()
    ignore = _Of[list[str]]()


def node_of(kind: Callable[..., Node], values: Mapping[str, Any]) -> Node:
    """Returns ``values`` as a dataclass of the schema, nested nodes included; missing values get their default."""
    kinds = types_of(kind)
    return kind(
        **{
            name: node_of(kinds[name], value) if isinstance(value, Mapping) and is_dataclass(kinds[name]) else value
            for name, value in values.items()
            if name in kinds
        }
    )


def has_several_servers(nodes: Nodes) -> bool:
    """Returns whether the nodes ask for several servers behind a router."""
    return nodes.topology.name != SINGLE


def unused_by_one_server(nodes: Nodes, requests: Sequence[Request]) -> Iterator[Finding]:
    """Yields the findings on ``replicas`` and typed keys of a role, which nothing reads if one server is planned."""
    if has_several_servers(nodes):
        return
    if (count := nodes.replicas) is not None:
        message = f"replicas={count} is for several servers behind a router, and this is one server"
        yield Finding("error", "TOP001", message, ("replicas",), offers=f"topology=replicas replicas={count}")
    for item in requests:
        if item.layer == "cli" and item.name.startswith(("topology.prefill.", "topology.decode.")):
            message = f"{item.name} is for topology=pd, and this is one server"
            yield Finding("error", "TOP001", message, (item.name,), offers="topology=pd")
