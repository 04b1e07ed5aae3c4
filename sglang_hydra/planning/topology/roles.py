"""What ``topology`` asks for, taken apart: the roles, how many servers each has, and what differs from the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.topology import DECODE, ON_WORKER_EXIT, PD, PREFILL, REPLICA, REPLICAS, SINGLE
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.placement import gpu_offsets
from sglang_hydra.planning.topology.router import secret_flags
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import nearest

NAMES = (SINGLE, REPLICAS, PD)
MOST_SERVERS = 256
_LONGEST_S = 7 * 24 * 3600
PLACING = ("port", "base_gpu_id", "nccl_port", "disaggregation_bootstrap_port", "host")
"""Arguments that the topology gives each server; set for a role, they are where its servers are counted from."""
_NOT_FOR_A_ROLE = {
    "disaggregation_mode": "it is what the role says",
    "api_key": "all servers and the router have one key: api_key='${oc.env:MY_KEY}'",
    "nnodes": "the servers of a topology stand on one node",
    "node_rank": "the servers of a topology stand on one node",
}


@dataclass(frozen=True)
class Role:
    """The servers of one kind. ``requests`` are what they add to the common ones; ``fixed`` the placing arguments
    among them."""

    name: str
    replicas: int
    requests: tuple[Request, ...] = ()
    fixed: frozenset[str] = frozenset()


def roles_of(common: Plan, requests: Sequence[Request]) -> list[Role]:
    """The roles of what was composed, prefill before decode. Raises ConfigError with everything that is wrong."""
    node = common.nodes["topology"]
    findings = [*_settings(common, node), *_common_arguments(common)]
    roles: list[Role] = []
    if node["name"] == REPLICAS:
        findings += _replicas(common)
        roles = [Role(REPLICA, common.nodes["replicas"] or 1)]
    elif node["name"] == PD:
        for name in (PREFILL, DECODE):
            findings += _role_findings(name, node[name])
            places = Places(requests, f"topology={common.choices.get('topology') or PD}")
            roles.append(_role(name, node[name], places))
    if findings:
        raise ConfigError(*findings)
    return roles


class Places:
    """Where a key below ``topology`` was typed; ``otherwise`` for what stands in a file of the group."""

    def __init__(self, requests: Sequence[Request], otherwise: str) -> None:
        typed = {request.key or request.text.lstrip("+").partition("=")[0]: request for request in requests}
        self._typed, self._otherwise = typed, otherwise

    def of(self, key: str) -> tuple[str, str]:
        """The place and the layer of the last word on ``key``."""
        while key:
            if key in self._typed and key != "topology":
                return self._typed[key].place, self._typed[key].layer
            key = key.rpartition(".")[0]
        return self._otherwise, "topology"


def _settings(common: Plan, node: Mapping[str, Any]) -> Iterator[Finding]:
    name, seconds = node["name"], node["router"]["ready_timeout"]
    if name not in NAMES:
        near = nearest(str(name), NAMES)
        message = f"topology.name={name!r} is none of {', '.join(NAMES)}"
        yield Finding("error", "TOP001", message, ("topology",), f"topology={near or REPLICAS}")
    yield from secret_flags(node["router"]["args"])
    if name == SINGLE:
        yield Finding("error", "TOP001", "one server is planned, and no topology", ("topology",), "topology=replicas")
    if name == PD and common.nodes["replicas"] is not None:
        message = f"replicas={common.nodes['replicas']} is for topology=replicas"
        hint = f"topology.prefill.replicas={common.nodes['replicas']} or topology.decode.replicas=..."
        yield Finding("error", "TOP001", message, ("replicas",), hint)
    if node["on_worker_exit"] not in ON_WORKER_EXIT:
        message = f"topology.on_worker_exit={node['on_worker_exit']!r} is neither {' nor '.join(ON_WORKER_EXIT)}"
        yield Finding("error", "TOP001", message, ("topology.on_worker_exit",), "topology.on_worker_exit=continue")
    if not 0 < seconds < _LONGEST_S:
        key = "topology.router.ready_timeout"
        yield Finding("error", "TOP001", f"{key}={seconds} is no time in seconds to wait", (key,), f"{key}=120")


def _common_arguments(common: Plan) -> Iterator[Finding]:
    """Arguments of all servers that would take the topology apart."""
    mode = common.intent.get("disaggregation_mode")
    if mode not in (None, "null"):
        message = f"disaggregation_mode={mode} is for a server that is started alone; a topology sets it itself"
        yield Finding("error", "TOP002", message, ("disaggregation_mode",), "topology=pd, without disaggregation_mode")
    nodes = common.intent.get("nnodes")
    if isinstance(nodes, int) and nodes != 1:
        message = f"nnodes={nodes}: the servers of a topology stand on one node"
        hint = "nnodes=1, or start each server on its nodes and a router with all their URLs"
        yield Finding("error", "TOP003", message, ("nnodes",), hint)
    if common.nodes["launch"]["name"] != "local":
        message = f"launch={common.nodes['launch']['name']}: a topology is started on this machine"
        yield Finding("error", "TOP003", message, ("launch",), "launch=local, inside the job that has the GPUs")
    if common.nodes["launch"].get("detach"):
        message = "launch.detach=true: a topology runs in the foreground"
        yield Finding("error", "TOP003", message, ("launch.detach",), "launch.detach=false, under tmux or a service")


def _replicas(common: Plan) -> Iterator[Finding]:
    count = common.nodes["replicas"]
    if count is not None:
        yield from _count("replicas", count)
        return
    gpus, each = common.gpu.count, len(gpu_offsets(common.values))
    fitting = gpus // each if gpus and each else 0
    hint = f"replicas={fitting or 2}" + (f": {common.gpu.name} has {gpus}, a server takes {each}" if fitting else "")
    yield Finding("error", "TOP001", "topology=replicas: how many?", ("replicas",), hint)


def _count(key: str, count: int) -> Iterator[Finding]:
    if not 0 < count <= MOST_SERVERS:
        message = f"{key}={count}: from 1 to {MOST_SERVERS} servers can be had"
        yield Finding("error", "TOP001", message, (key,), f"{key}={1 if count < 1 else MOST_SERVERS}")


def _role_findings(role: str, node: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _count(f"topology.{role}.replicas", node["replicas"])
    for name in node["args"]:
        key = f"topology.{role}.args.{name}"
        if name in _NOT_FOR_A_ROLE:
            yield Finding("error", "TOP002", f"{key}: {_NOT_FOR_A_ROLE[name]}", (key,), f"leave {key} out")
        elif name not in FIELDS:
            near = nearest(str(name), FIELDS)
            hint = f"did you mean topology.{role}.args.{near}?" if near else None
            yield Finding("error", "CLI001", f"{key}: {name!r} is no argument of SGLang 0.5.2", (key,), hint)
        elif name == "dist_init_addr" and node["replicas"] > 1 and node["args"][name] is not None:
            message = f"{key}: {node['replicas']} servers cannot meet at one address"
            yield Finding("error", "TOP006", message, (key,), f"leave it out, or topology.{role}.replicas=1")


def _role(name: str, node: Mapping[str, Any], places: Places) -> Role:
    args = {key: value for key, value in node["args"].items() if key in FIELDS}
    requests = [Request.typed("disaggregation_mode", name, f"topology=pd, {name}", "topology")]
    for key, value in args.items():
        place, layer = places.of(f"topology.{name}.args.{key}")
        requests.append(Request.typed(key, value, place, layer))
    fixed = frozenset(key for key in PLACING if args.get(key) is not None)
    return Role(name, node["replicas"], tuple(requests), fixed)
