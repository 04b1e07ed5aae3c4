"""The plan of a topology: a plan for each of its servers, made as any other, and the router in front of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sglang_hydra.arguments.ports import server_url
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.topology import DECODE, PD, PREFILL
from sglang_hydra.facts.machine_cache import asking_once
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan, digest
from sglang_hydra.planning.topology import checks
from sglang_hydra.planning.topology.placement import (
    FIRST_PORT,
    LAST_PORT,
    Floor,
    Needs,
    Place,
    PortUse,
    gpu_offsets,
    ports_of,
)
from sglang_hydra.planning.topology.roles import Role, nodes_of_servers, roles_of
from sglang_hydra.planning.topology.router import PROMETHEUS_PORT, Router, api_key_finding, plan_router
from sglang_hydra.planning.verdict import Verdict, verdict_on
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain

SCHEMA = "sglang_hydra.topology/1"
LAYER = "topology"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
NODE = "NODE"
"""NODE0, NODE1 stand for the addresses of the nodes, which are known when they are given."""


@dataclass(frozen=True)
class Server:
    """One server of a topology: what it is for (``replica``, ``prefill``, ``decode``), its number within that role,
    its plan, and the numbers of the GPUs that it takes on each of its ``nodes`` (none on a CPU). ``head_port`` is where
    several nodes of one server meet. ``address`` stands for its first node, None where that is the router's."""

    role: str
    index: int
    plan: Plan
    gpus: tuple[int, ...]
    nodes: tuple[int, ...] = (0,)
    head_port: int | None = None
    address: str | None = None

    @property
    def name(self) -> str:
        return f"{self.role} {self.index}"

    @property
    def url(self) -> str:
        """Where the router reaches it."""
        values = self.plan.values
        return server_url(values if self.address is None else {"host": self.address, "port": values["port"]})

    @property
    def bootstrap_port(self) -> int:
        """Where the decode servers find a prefill server."""
        return int(self.plan.values["disaggregation_bootstrap_port"])

    @property
    def ports(self) -> list[PortUse]:
        values = self.plan.values
        if self.head_port is not None:
            values = {**values, "dist_init_addr": f"{self.address}:{self.head_port}"}
        return ports_of(values, self.plan.layout)


@dataclass(frozen=True)
class Topology:
    """What ``topology=`` asks for, planned: servers in the order in which they start, and the router after them.

    ``common`` is the plan of what all share, as if it were one server; it gives the settings and is not judged.
    ``together`` are the findings about the servers as a whole; each plan has its own. ``ok`` is SGLang's verdict on
    every server, ``launchable`` adds ours and is None where nobody knows. ``nodes`` is the number of nodes; the router
    is on the first.
    """

    name: str
    common: Plan
    servers: tuple[Server, ...]
    router: Router
    nodes: int = 1
    together: tuple[Finding, ...] = ()
    ignored: tuple[Finding, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return all(server.plan.ok for server in self.servers)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether all of it can be launched, and why."""
        return verdict_on(self.findings, [server.plan for server in self.servers])

    @property
    def launchable(self) -> bool | None:
        """Whether all of it can be launched; None where that is not known."""
        return self.verdict.launchable

    @property
    def findings_with_servers(self) -> list[tuple[Finding, tuple[Server, ...]]]:
        """Every finding once, with the servers that have it; those of all together have none."""
        found: dict[Finding, list[Server]] = {}
        remedies: dict[Finding, Finding] = {}
        enough = not any(finding.id in ("TOP004", "TOP005") for finding in self.together)
        for server in self.servers:
            for finding in server.plan.findings:
                if not enough and finding.id == "GPU001":
                    continue  # reported once, for all servers
                same = replace(finding, remedies=())
                remedies.setdefault(same, finding)
                found.setdefault(same, []).append(server)
        whole: list[tuple[Finding, tuple[Server, ...]]] = [(finding, ()) for finding in self.together]
        return whole + [
            (one.said(checks.remedies_for(remedies[one], {server.role for server in having})), tuple(having))
            for one, having in found.items()
        ]

    @property
    def findings(self) -> list[Finding]:
        """Every finding once."""
        return [finding for finding, _ in self.findings_with_servers]

    @property
    def router_argv(self) -> list[str]:
        """The router's flags, with the addresses of the servers."""
        if self.name != PD:
            return self.router.argv([server.url for server in self.servers])
        prefill = [(server.url, server.bootstrap_port) for server in self.servers if server.role == PREFILL]
        return self.router.argv([server.url for server in self.servers if server.role == DECODE], prefill)

    @cached_property
    def topology_id(self) -> str:
        """16 hex digits: equal for topologies whose servers compute the same behind a router that routes the same."""
        where = ("host", "port", "prometheus_host", "prometheus_port", "log_level", "log_dir")
        routing = {name: value for name, value in self.router.settings.items() if name not in where}
        servers = [[server.role, server.plan.server_id] for server in self.servers]
        return digest({"topology": self.name, "servers": servers, "router": [self.router.release, routing]})

    def to_json(self) -> dict[str, Any]:
        """The artifact. Its schema is committed as schemas/topology.schema.json; it holds no secret."""
        router = self.router
        return {
            "schema": SCHEMA,
            "topology_id": self.topology_id,
            "name": self.name,
            "ok": self.ok,
            "launchable": self.launchable,
            "why": self.verdict.why,
            "nodes": self.nodes,
            "servers": [
                {
                    "role": server.role,
                    "index": server.index,
                    "nodes": list(server.nodes),
                    "gpus": list(server.gpus),
                    "url": server.url,
                    "ports": [{"use": use.what, "first": use.ports[0], "last": use.ports[-1]} for use in server.ports],
                    "plan": server.plan.to_json(),
                }
                for server in self.servers
            ],
            "router": {
                "release": router.release,
                "belongs": router.belongs,
                "installed": router.installed,
                "python": router.python,
                "host": router.host,
                "port": router.port,
                "settings": plain(router.settings),
                "command": router.command(self.router_argv),
            },
            "on_worker_exit": self.common.nodes["topology"]["on_worker_exit"],
            "together": [finding.to_json() for finding in self.together],
            "ignored": [finding.to_json() for finding in self.ignored],
        }


def plan_topology(
    composer: Composer,
    requests: Sequence[Request],
    *,
    common: Plan | None = None,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    is_free: Callable[[int], bool] = lambda port: True,
) -> Topology:
    """Plans every server of the topology that ``requests`` ask for.

    ``common`` is the plan of these requests, where the caller has it; the rest is as for ``app.make_plan``, and one
    ``seed`` is for all servers. Ports that nobody named are those for which ``is_free`` is true. Raises ConfigError
    for what is no topology.
    """
    with asking_once():
        if common is None:
            common = make_plan(composer, requests, seed=seed, env=env)
        if seed is None and common.seed_drawn:
            seed = common.values["random_seed"]

        def planned(*more: Request) -> Plan:
            return make_plan(composer, [*requests, *more], seed=seed, env=env)

        roles = roles_of(common, requests)
        kinds = {role.name: planned(*role.requests) if role.requests else common for role in roles}
        node = common.nodes["topology"]["router"]
        host, port = _address(common)
        floor = Floor([port, *([] if node["prometheus_port"] is None else [node["prometheus_port"]])], is_free)
        nodes, count = nodes_of_servers(common, roles, kinds)
        places = _places(floor, roles, kinds, port, nodes)
        servers = tuple(
            _server(role, index, place, kinds, planned, common, count > 1)
            for role in roles
            for index, place in enumerate(places[role.name])
        )
    metrics = floor.port(PROMETHEUS_PORT) if node["prometheus_port"] is None else node["prometheus_port"]
    return _with_router(common, servers, count, host, port, metrics)


def _with_router(common: Plan, servers: tuple[Server, ...], nodes: int, host: str, port: int, metrics: int) -> Topology:
    """The servers as a topology: with the router that belongs to them, and everything looked at together."""
    name, ignore = common.nodes["topology"]["name"], common.nodes["ignore"]
    router, findings = plan_router(
        common.nodes["topology"]["router"],
        sglang=common.engine.version,
        engine_python=common.engine.python,
        host=host,
        port=port,
        metrics=metrics,
        pd=name == PD,
    )
    if common.secrets:
        findings.append(api_key_finding(router))
    findings += checks.together(name, servers, router, common)
    return Topology(
        name=name,
        common=common,
        servers=servers,
        router=router,
        nodes=nodes,
        together=tuple(finding for finding in findings if finding.id not in ignore),
        ignored=tuple(finding for finding in findings if finding.id in ignore),
    )


def _address(common: Plan) -> tuple[str, int]:
    """Where clients find the router."""
    node = common.nodes["topology"]["router"]
    host = common.values["host"] if node["host"] is None else node["host"]
    port = common.values["port"] if node["port"] is None else node["port"]
    return str(host), int(port)


def _places(
    floor: Floor,
    roles: Sequence[Role],
    kinds: Mapping[str, Plan],
    router_port: int,
    nodes: Mapping[str, Sequence[tuple[int, ...]]],
) -> dict[str, list[Place]]:
    """A place for every server on its nodes; servers with ports or GPUs that were set come first."""
    first = router_port if 0 < router_port < LAST_PORT else FIRST_PORT
    places: dict[str, list[Place]] = {}
    for role in sorted(roles, key=lambda role: -len(role.fixed)):
        kind, own = kinds[role.name], Floor()
        needs = Needs(
            values=kind.values,
            layout=kind.layout,
            offsets=gpu_offsets(kind),
            base_gpu_id=kind.values["base_gpu_id"],
            port=kind.values["port"] if "port" in role.fixed else first + 1,
            disaggregation_bootstrap_port=(
                kind.values["disaggregation_bootstrap_port"] if role.name == PREFILL else None
            ),
            nccl_port=kind.intent.get("nccl_port"),
            fixed=role.fixed,
        )
        places[role.name] = [floor.give(needs, own, of_one) for of_one in nodes[role.name]]
    return places


def _server(
    role: Role,
    index: int,
    place: Place,
    kinds: Mapping[str, Plan],
    planned: Callable[..., Plan],
    common: Plan,
    several_nodes: bool,
) -> Server:
    topology = f"topology={common.nodes['topology']['name']}"
    alone = [
        Request.typed(name, value, f"{topology}, {role.name} {index}", LAYER)
        for name, value in _placed(role, place, kinds, common, several_nodes)
    ]
    settings = [
        Request.typed(name, value, f"{topology}, {role.name}", LAYER)
        for name, value in _values_of_other_role(role, kinds)
    ]
    plan = planned(*role.requests, *settings, *alone)
    address = f"{NODE}{place.nodes[0]}" if several_nodes else None
    return Server(role.name, index, plan, place.gpus, place.nodes, place.head, address)


def _placed(
    role: Role, place: Place, kinds: Mapping[str, Plan], common: Plan, several_nodes: bool
) -> Iterator[tuple[str, Any]]:
    """The arguments that the topology itself sets for one server, where they are not what it has already."""
    own = kinds[role.name]
    host = common.nodes["topology"]["worker_host"]
    if several_nodes and host in LOOPBACK:
        host = "0.0.0.0"  # the router and the other role are on other machines
    if own.values["host"] != host and "host" not in role.fixed:
        yield "host", host
    yield "port", place.port
    if place.gpus:
        yield "base_gpu_id", place.base_gpu_id
    if place.nccl is not None:
        yield "nccl_port", place.nccl
    if place.bootstrap is not None:
        yield "disaggregation_bootstrap_port", place.bootstrap


def _values_of_other_role(role: Role, kinds: Mapping[str, Plan]) -> Iterator[tuple[str, Any]]:
    """The arguments by which servers of one role know the sizes of the other, where SGLang would assume others. Later
    releases have some of them no more: their servers tell each other."""
    own = kinds[role.name]
    asked = {name for name in own.values if name not in own.intent}
    if role.name == PREFILL:
        theirs = kinds[DECODE].layout
        sizes = {"tp": (theirs.tp, own.layout.tp), "dp": (theirs.replicas, own.layout.replicas)}
        for name, (other, mine) in sizes.items():
            if f"disaggregation_decode_{name}" in asked and other != mine:
                yield f"disaggregation_decode_{name}", other
    if role.name == DECODE and "disaggregation_prefill_pp" in asked:
        stages = kinds[PREFILL].values["pp_size"]
        if stages != own.values["disaggregation_prefill_pp"]:
            yield "disaggregation_prefill_pp", stages
