"""Reads ``topology``: the roles, the number of servers and nodes of each, and their differences from the common
settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.topology import (
    DECODE,
    ON_WORKER_EXIT,
    PD,
    PREFILL,
    REPLICA,
    REPLICAS,
    SINGLE,
    RoleNode,
    TopologyNode,
)
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.placement import gpu_offsets
from sglang_hydra.planning.topology.router import secret_flags
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Hint, Remedy
from sglang_hydra.text.words import nearest, plural

NAMES = (SINGLE, REPLICAS, PD)
MOST_SERVERS = 256
_LONGEST_S = 7 * 24 * 3600
PLACING = ("port", "base_gpu_id", "nccl_port", "disaggregation_bootstrap_port", "host")
"""Arguments that the topology gives each server; set for a role, they are the start for its servers."""
_NOT_FOR_A_ROLE = {
    "disaggregation_mode": "the role sets it",
    "api_key": "all servers and the router have one key: api_key='${oc.env:MY_KEY}'",
    "node_rank": "every node of a server gets its own",
}


@dataclass(frozen=True)
class Role:
    """The servers of one kind. ``requests`` are their additions to the common ones; ``fixed`` names the placing
    arguments among them. ``nodes`` is their given number of nodes, or None."""

    name: str
    replicas: int
    nodes: int | None = None
    requests: tuple[Request, ...] = ()
    fixed: frozenset[str] = frozenset()


def roles_of(common: Plan, requests: Sequence[Request]) -> list[Role]:
    """Returns the roles of the composition, prefill before decode. Raises ConfigError with all errors."""
    node = common.nodes.topology
    findings = [*_settings(common, node), *_common_arguments(common)]
    roles: list[Role] = []
    if node.name == REPLICAS:
        findings += _replicas(common)
        roles = [Role(REPLICA, common.nodes.replicas or 1, node.nodes)]
    elif node.name == PD:
        for name in (PREFILL, DECODE):
            findings += _role_findings(name, getattr(node, name))
            chosen = Request("topology", f"topology={common.choices.get('topology') or PD}", "topology")
            roles.append(_role(name, getattr(node, name), chosen, {request.name: request for request in requests}))
    if findings:
        raise ConfigError(*findings)
    return roles


def nodes_of_servers(
    common: Plan, roles: Sequence[Role], kinds: Mapping[str, Plan]
) -> tuple[dict[str, list[tuple[int, ...]]], int]:
    """Returns the nodes of each server of each role, counted from 0, and the number of nodes.

    All share one node unless a role has a number of nodes or a server on several, or ``launch=slurm`` needs more GPUs
    than one node has. Then each role has nodes of its own, and its servers are spread over them. Raises ConfigError for
    a number of nodes that its servers cannot use."""
    each = {role.name: max(int(kinds[role.name].values["nnodes"]), 1) for role in roles}
    gpus = {role.name: len(gpu_offsets(kinds[role.name])) for role in roles}
    count = common.gpu.count
    total = sum(gpus[role.name] * role.replicas for role in roles)
    too_many = common.nodes.launch.name == "slurm" and count is not None and total > count
    if not too_many and all(role.nodes is None and each[role.name] == 1 for role in roles):
        return {role.name: [(0,)] * role.replicas for role in roles}, 1
    found: dict[str, list[tuple[int, ...]]] = {}
    first, findings = 0, []
    for role in roles:
        size = each[role.name]
        beside = max((count or 0) // gpus[role.name], 1) if gpus[role.name] and size == 1 else role.replicas
        needed = size * (role.replicas if size > 1 else -(-role.replicas // beside))
        nodes = needed if role.nodes is None else role.nodes
        if nodes % size or not size <= nodes <= size * role.replicas:
            findings.append(_unusable_nodes(role, nodes, size))
        groups = max(nodes // size, 1)
        starts = [first + server % groups * size for server in range(role.replicas)]
        found[role.name] = [tuple(range(start, start + size)) for start in starts]
        first += nodes
    if findings:
        raise ConfigError(*findings)
    return found, first


def _unusable_nodes(role: Role, nodes: int, size: int) -> Finding:
    key = "topology.nodes" if role.name == REPLICA else f"topology.{role.name}.nodes"
    servers = plural(role.replicas, f"{role.name} server")
    message = f"{key}={nodes}: {servers} on {plural(size, 'node')} each cannot share out {plural(nodes, 'node')}"
    return Finding("error", "TOP001", message, (key,), f"{key}={size * role.replicas}")


def _settings(common: Plan, node: TopologyNode) -> Iterator[Finding]:
    name, seconds = node.name, node.router.ready_timeout
    if name not in NAMES:
        near = nearest(str(name), NAMES)
        message = f"topology.name={name!r} is not one of {', '.join(NAMES)}"
        yield Finding("error", "TOP001", message, ("topology",), f"topology={near or REPLICAS}")
    yield from secret_flags(node.router.args)
    if name == SINGLE:
        yield Finding("error", "TOP001", "one server is planned, and no topology", ("topology",), "topology=replicas")
    if name == PD and node.nodes is not None:
        message = f"topology.nodes={node.nodes} is for topology=replicas"
        hint = f"topology.prefill.nodes={node.nodes} or topology.decode.nodes=..."
        yield Finding("error", "TOP001", message, ("topology.nodes",), hint)
    if name == PD and common.nodes.replicas is not None:
        message = f"replicas={common.nodes.replicas} is for topology=replicas"
        hint = f"topology.prefill.replicas={common.nodes.replicas} or topology.decode.replicas=..."
        yield Finding("error", "TOP001", message, ("replicas",), hint)
    if node.on_worker_exit not in ON_WORKER_EXIT:
        message = f"topology.on_worker_exit={node.on_worker_exit!r} is neither {' nor '.join(ON_WORKER_EXIT)}"
        yield Finding("error", "TOP001", message, ("topology.on_worker_exit",), "topology.on_worker_exit=continue")
    if not 0 < seconds < _LONGEST_S:
        key = "topology.router.ready_timeout"
        yield Finding("error", "TOP001", f"{key}={seconds} is no time in seconds to wait", (key,), f"{key}=120")


def _common_arguments(common: Plan) -> Iterator[Finding]:
    """Yields findings on arguments of all servers that a topology does not allow."""
    mode = common.intent.get("disaggregation_mode")
    if mode not in (None, "null"):
        message = f"disaggregation_mode={mode} is for a server that is started alone; a topology sets it itself"
        yield Finding("error", "TOP002", message, ("disaggregation_mode",), "topology=pd, without disaggregation_mode")
    if common.nodes.launch.detach:
        message = "launch.detach=true: a topology runs in the foreground"
        yield Finding("error", "TOP003", message, ("launch.detach",), "launch.detach=false, under tmux or a service")


def _replicas(common: Plan) -> Iterator[Finding]:
    count = common.nodes.replicas
    if count is not None:
        yield from _count("replicas", count)
        return
    gpus, each = common.gpu.count, len(gpu_offsets(common))
    fitting = gpus // each if gpus and each else 0
    hint = f"replicas={fitting or 2}" + (f": {common.gpu.name} has {gpus}, a server takes {each}" if fitting else "")
    yield Finding("error", "TOP001", "topology=replicas: how many?", ("replicas",), hint)


def _count(key: str, count: int) -> Iterator[Finding]:
    if not 0 < count <= MOST_SERVERS:
        message = f"{key}={count}: a topology has 1 to {MOST_SERVERS} servers"
        yield Finding("error", "TOP001", message, (key,), f"{key}={1 if count < 1 else MOST_SERVERS}")


def _role_findings(role: str, node: RoleNode) -> Iterator[Finding]:
    yield from _count(f"topology.{role}.replicas", node.replicas)
    for name in node.args:
        key = f"topology.{role}.args.{name}"
        if name in _NOT_FOR_A_ROLE:
            yield Finding("error", "TOP002", f"{key}: {_NOT_FOR_A_ROLE[name]}", (key,), f"leave {key} out")
        elif name not in EVERY:
            near = nearest(str(name), EVERY)
            hint = Remedy.meant(f"topology.{role}.args.{near}") if near else f"{name}=... is for all servers"
            yield Finding("error", "CLI001", f"{key}: {name!r} is no argument of SGLang 0.5.2", (key,), hint)
        elif name == "dist_init_addr" and node.replicas > 1 and node.args[name] is not None:
            message = f"{key}: {node.replicas} servers cannot meet at one address"
            yield Finding("error", "TOP006", message, (key,), f"leave it out, or topology.{role}.replicas=1")


def _role(name: str, node: RoleNode, chosen: Request, typed: Mapping[str, Request]) -> Role:
    args = {key: value for key, value in node.args.items() if key in EVERY}
    requests = [Request.typed("disaggregation_mode", name, f"topology=pd, {name}", "topology")]
    for key, value in args.items():
        above = (f"topology.{name}.args.{key}", f"topology.{name}.args", f"topology.{name}")
        setter = next((typed[part] for part in above if part in typed), chosen)
        requests.append(Request.typed(key, value, setter.place, setter.layer))
    fixed = frozenset(key for key in PLACING if args.get(key) is not None)
    return Role(name, node.replicas, node.nodes, tuple(requests), fixed)


def remedies_for(finding: Finding, roles: Collection[str]) -> Hint:
    """Returns the remedies of a finding on servers of these roles: with the keys of the role where a topology=pd has
    one, and without those that need more nodes."""
    role = next(iter(roles)) if len(roles) == 1 else None
    id = finding.id
    if id == "DIS008":
        return "topology.decode.args.tp_size=N, or topology.prefill.args.tp_size=N"
    if id == "DIS004" and role == DECODE:
        return f"{role_key(DECODE, 'prefill_round_robin_balance')}=true"
    if id not in ("FIT001", "FIT002", "FIT003", "GPU001"):
        return finding.remedies
    kept = [one for one in finding.remedies if not any(word.startswith("nnodes=") for word in one.words)]
    if role is None or role not in (PREFILL, DECODE):
        return kept
    of_role = [
        [role_key(role, word) if word.partition("=")[0] in EVERY else word for word in one.words] for one in kept
    ]
    both = zip(kept, of_role, strict=True)
    return [one._replace(said=" ".join(words), words=tuple(words)) if words else one for one, words in both]


def role_key(role: str, name: str) -> str:
    return f"topology.{role}.args.{name}"
