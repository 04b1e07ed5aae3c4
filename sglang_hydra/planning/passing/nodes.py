"""Makes the launches of several nodes from one intent, and the address of the first node.

Every node gets the same arguments except ``node_rank``; ``dist_init_addr`` and ``base_gpu_id`` are the same everywhere:
each node counts its own GPUs. Only node 0 serves. The others answer only /health, with 200 once their ranks are loaded
(SGLang 0.5.2: entrypoints/engine.py lines 805-826; 0.5.23: the same, and there a SIGTERM on them waits for node 0 to
end first)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sglang_hydra.arguments.ports import head_address, host_and_port
from sglang_hydra.planning.engines.base import Machine
from sglang_hydra.planning.engines.planned import plan_engine
from sglang_hydra.planning.fields import PlanFields
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject


def unknown_head(plan: PlanFields | None = None) -> str:
    """Returns the placeholder for the address of node 0 in a command that is shown before it is known."""
    port = plan.nodes.launch.head_port if plan is not None else None
    return f"HEAD:{port or 'PORT'}"


class Head(NamedTuple):
    """The address of node 0 for the other nodes; an IPv6 ``host`` is without brackets."""

    host: str
    port: int

    @property
    def address(self) -> str:
        return host_and_port(self.host, self.port)


def head_of(values: Mapping[str, object]) -> Head | None:
    """Returns the head in ``dist_init_addr``; None if it is unset. Raises ConfigError for an invalid address."""
    if values["dist_init_addr"] is None:
        return None
    host, port = head_address(values)
    return Head(host.strip("[]"), port)


def node_intents(intent: Mapping[str, object], nnodes: int, head: str | None = None) -> list[JsonDict]:
    """Returns the intent of each node, node 0 first. ``head`` is the address for an intent without one."""
    if nnodes <= 1:
        return [dict(intent)]
    address = intent.get("dist_init_addr") or head or unknown_head()
    return [{**intent, "nnodes": nnodes, "node_rank": rank, "dist_init_addr": address} for rank in range(nnodes)]


def node_commands(plan: PlanFields, head: str | None = None) -> list[tuple[str, ...]]:
    """Returns the command that a person would type on each node, node 0 first, without secrets."""
    planned = plan_engine(plan.nodes.engine)
    request = planned.request(plan.resolution, plan.environment, Machine(None))
    commands = [
        tuple(planned.engine.command(replace(request, intent=intent)).shown)
        for intent in node_intents(request.intent, int(plan.values["nnodes"]), head or unknown_head(plan))
    ]
    if len(commands) > 1 and "--node-rank" not in commands[0]:  # the default, but it distinguishes the lines
        commands[0] = (*commands[0], "--node-rank", "0")
    return commands


_ONE_NODE = ("engine=sglang", "nnodes=1", "nnodes=1 tp_size=1")


def node_findings(values: JsonObject, launch: str, engine: str) -> list[Finding]:
    """Returns findings on several nodes beyond SGLang's own checks, for this launcher and engine."""
    if values["nnodes"] <= 1:
        return []
    if engine == "transformers":
        message = f"nnodes={values['nnodes']}: the embedded engine (transformers serve) runs on one node"
        return [Finding("error", "NOD005", message, ("nnodes", "engine"), offers=_ONE_NODE)]
    if launch == "local" and values["dist_init_addr"] is None and values["node_rank"] > 0:
        message = f"node {values['node_rank']} cannot know where node 0 is: dist_init_addr is not set"
        hint = "dist_init_addr=HOST:PORT, as node 0 shows it; launch=slurm finds it by itself"
        return [Finding("error", "NOD006", message, ("dist_init_addr", "node_rank"), hint)]
    return []


def command_rows(plan: PlanFields) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields each node and its command, for people: every node of a few, the first two of many."""
    commands = node_commands(plan)
    here = int(plan.values["node_rank"]) if plan.nodes.launch.name == "local" else None
    shown = len(commands) if len(commands) <= 4 else 2
    for rank, command in enumerate(commands[:shown]):
        role = " (head)" if rank == 0 else ""
        yield f"node {rank}{role}{', this one' if rank == here else ''}", command
    if shown < len(commands):
        yield f"nodes {shown} to {len(commands) - 1}: the same, each with its own --node-rank", ()
