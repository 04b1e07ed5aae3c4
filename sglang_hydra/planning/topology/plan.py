"""Plans a topology: a plan for each of its servers, made as usual, and the router in front of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.topology import DECODE, PD, PREFILL
from sglang_hydra.facts.machine_cache import asking_once
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology import checks
from sglang_hydra.planning.topology.placement import FIRST_PORT, LAST_PORT, Floor, Needs, Place, gpu_offsets
from sglang_hydra.planning.topology.roles import Role, nodes_of_servers, roles_of
from sglang_hydra.planning.topology.router import PROMETHEUS_PORT, api_key_finding, plan_router
from sglang_hydra.planning.topology.servers import NODE, Server, Topology

LAYER = "topology"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def plan_topology(
    composer: Composer,
    requests: Sequence[Request],
    *,
    common: Plan | None = None,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    is_free: Callable[[int], bool] = lambda port: True,
) -> Topology:
    """Plans every server of the topology in ``requests``.

    ``common`` is the plan of these requests, if the caller has it; the rest is as for ``make_plan``, with one ``seed``
    for all servers. Unset ports are chosen among those with ``is_free`` true. Raises ConfigError for an invalid
    topology."""
    with asking_once():
        if common is None:
            common = make_plan(composer, requests, seed=seed, env=env)
        if seed is None and common.seed_drawn:
            seed = common.values["random_seed"]

        def planned(*more: Request) -> Plan:
            return make_plan(composer, [*requests, *more], seed=seed, env=env)

        roles = roles_of(common, requests)
        kinds = {role.name: planned(*role.requests) if role.requests else common for role in roles}
        node = common.nodes.topology.router
        host = str(common.values["host"] if node.host is None else node.host)
        port = int(common.values["port"] if node.port is None else node.port)
        floor = Floor([port, *([] if node.prometheus_port is None else [node.prometheus_port])], is_free)
        nodes, count = nodes_of_servers(common, roles, kinds)
        places = _places(floor, roles, kinds, port, nodes)
        topology, several, servers = f"topology={common.nodes.topology.name}", count > 1, []
        for role in roles:
            theirs = _values_of_other_role(role, kinds)
            sizes = [Request.typed(name, value, f"{topology}, {role.name}", LAYER) for name, value in theirs]
            for index, place in enumerate(places[role.name]):
                own = _placed(role, place, kinds[role.name], common, several)
                alone = [Request.typed(key, value, f"{topology}, {role.name} {index}", LAYER) for key, value in own]
                plan = planned(*role.requests, *sizes, *alone)
                address = f"{NODE}{place.nodes[0]}" if several else None
                servers.append(Server(role.name, index, plan, place.gpus, place.nodes, place.head, address))
    metrics = floor.port(PROMETHEUS_PORT) if node.prometheus_port is None else node.prometheus_port
    return _with_router(common, tuple(servers), count, host, port, metrics)


def _with_router(common: Plan, servers: tuple[Server, ...], nodes: int, host: str, port: int, metrics: int) -> Topology:
    """Returns the servers as a topology, with its router and the checks of the whole."""
    name, ignore = common.nodes.topology.name, common.nodes.ignore
    router, findings = plan_router(
        common.nodes.topology.router,
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


def _places(
    floor: Floor,
    roles: Sequence[Role],
    kinds: Mapping[str, Plan],
    router_port: int,
    nodes: Mapping[str, Sequence[tuple[int, ...]]],
) -> dict[str, list[Place]]:
    """Returns a place for every server on its nodes; servers with set ports or GPUs come first."""
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


def _placed(role: Role, place: Place, own: Plan, common: Plan, several_nodes: bool) -> Iterator[tuple[str, object]]:
    """Yields the arguments that the topology itself sets for one server, where they differ from its own."""
    host = common.nodes.topology.worker_host
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


def _values_of_other_role(role: Role, kinds: Mapping[str, Plan]) -> Iterator[tuple[str, object]]:
    """Yields the arguments that tell servers of one role the sizes of the other, where SGLang would assume others.
    Later releases lack some of them: their servers exchange the sizes."""
    own = kinds[role.name]
    asked = {name for name in own.values if name not in own.intent}
    if role.name == PREFILL:
        theirs = kinds[DECODE].layout
        sizes = {"tp": (theirs.tp, own.layout.tp), "dp": (theirs.replicas, own.layout.replicas)}
        for name, (other, mine) in sizes.items():
            if f"disaggregation_decode_{name}" in asked and other != mine:
                yield f"disaggregation_decode_{name}", other
    if role.name == DECODE and "disaggregation_prefill_pp" in asked:
        stages = kinds[PREFILL].layout.stages
        if stages != own.values["disaggregation_prefill_pp"]:
            yield "disaggregation_prefill_pp", stages
