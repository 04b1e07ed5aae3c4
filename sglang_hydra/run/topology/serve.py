"""Implements ``serve`` for a topology: checks every server before the first one starts, and starts the router last."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.compose.overrides import Request
from sglang_hydra.facts.tiny import make_if_tiny
from sglang_hydra.planning.engines.base import Command
from sglang_hydra.planning.engines.planned import choose
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.plan import plan_topology
from sglang_hydra.planning.topology.router import absent
from sglang_hydra.planning.topology.servers import Server, Topology
from sglang_hydra.run.launch import child_sglang
from sglang_hydra.run.launch.display import display_for
from sglang_hydra.run.launch.head import free_port, is_free
from sglang_hydra.run.launch.hydra_run import in_hydra, run_folder, write_in_run_folder
from sglang_hydra.run.launch.launch_request import LaunchRequest
from sglang_hydra.run.launch.local import Launch, LocalServer, run_until_end
from sglang_hydra.run.launch.port import port_obstacle
from sglang_hydra.run.launch.preflight import Preflight, preflight
from sglang_hydra.run.launch.serve import launch_of, stopped_lines
from sglang_hydra.run.launch.server_info import after_start, curl_line
from sglang_hydra.run.topology.server_group import Member, ServerGroup, of_server
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.topology import topology_screen
from sglang_hydra.text.errors import ConfigError, MachineError, ServerError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, text, write
from sglang_hydra.text.words import plural

_FIRST_WITH_READINESS = "0.1.7"
_ROUTER_MILESTONES = {"healthy": "workers found", "Starting server": "answering", "Activated": "workers found"}


def serve_topology(asked: LaunchRequest, plan: Plan, in_slurm: Callable[[LaunchRequest, Topology], int]) -> int:
    """Plans the servers, shows them, checks the machine, and runs them behind the router until the end.

    ``plan`` is the plan of their shared settings; ``in_slurm`` runs them for launch=slurm. Returns the exit code.
    Raises ConfigError and MachineError before anything starts."""
    node = plan.nodes.topology.router
    key, port = ("port", plan.values["port"]) if node.port is None else ("topology.router.port", node.port)
    if port == 0:
        requests = [*asked.requests, Request.typed(key, free_port(), f"{key}=0: one that was free")]
        topology = plan_topology(asked.composer, requests, seed=plan.values["random_seed"], is_free=is_free)
    else:
        topology = plan_topology(asked.composer, asked.requests, common=plan, is_free=is_free)
    write(topology_screen(topology, everything=asked.everything))
    if topology.launchable is False and not (topology.ok and plan.nodes.launch.force):
        return 2
    if plan.nodes.launch.name == "slurm":
        return in_slurm(asked, topology)
    if topology.nodes > 1:
        message = f"launch=local: {plural(topology.nodes, 'node')} are planned, and this is one"
        raise ConfigError(Finding("error", "TOP003", message, ("launch",), ("launch=slurm", "export k8s")))
    checked = look_at_machine(topology)
    return in_hydra(asked, lambda: _run(topology, checked))


def look_at_machine(topology: Topology) -> list[Preflight]:
    """Checks this machine for each server; shows each warning once.

    Raises MachineError with everything that is missing: SGLang, the router, GPUs, ports, the model."""
    common = topology.common
    make_if_tiny(common.values["model_path"])
    checked = [preflight(server.plan) for server in topology.servers]
    choose("sglang", common.engine.python, checked[0].machine, None)
    found: dict[Finding, list[str]] = {}
    for server, look in zip(topology.servers, checked, strict=True):
        for finding in look.findings:
            found.setdefault(finding, []).append(server.name)
    every = len(topology.servers)
    findings = [
        finding if len(who) == every else replace(finding, message=f"{', '.join(who)}: {finding.message}")
        for finding, who in found.items()
    ]
    findings += filter(None, [absent(topology.router), *_router_ports(topology)])
    if any(finding.level == "error" for finding in findings):
        raise MachineError(*findings)
    write(finding_lines(findings))
    return checked


def router_launch(topology: Topology, log_file: Path | None = None) -> Launch:
    """Returns the launch of the router: its flags, the key apart from them, and its readiness check. Across several
    nodes, the servers' addresses are placeholders."""
    router = topology.router
    argv = topology.router_argv
    return Launch(
        command=Command(
            argv=[router.python or sys.executable, child_sglang.__file__, child_sglang.ROUTER, *argv],
            shown=router.command(argv),
            secret=topology.common.secrets.get("api_key"),
        ),
        host=router.host,
        port=router.port,
        health_path="/readiness" if at_least(router.release, _FIRST_WITH_READINESS) else "/health",
        ready_timeout_s=router.ready_timeout_s,
        stop_timeout_s=topology.common.nodes.launch.stop_timeout,
        milestones=_ROUTER_MILESTONES,
        log_file=log_file,
    )


def members_of(topology: Topology, checked: Sequence[Preflight], folder: Path | None = None) -> list[Member]:
    """Returns the servers of a topology as launches on this machine."""
    logs = [folder_of(folder, server) / "server.log" if folder else None for server in topology.servers]
    return [
        Member(server.name, server.role, launch_of(server.plan, look.machine, log))
        for server, look, log in zip(topology.servers, checked, logs, strict=True)
    ]


def _run(topology: Topology, checked: Sequence[Preflight]) -> int:
    """Writes the plans to Hydra's run folder, starts everything and waits for the end."""
    folder = leave_plans(topology)
    members, router = members_of(topology, checked, folder), router_launch(topology, folder / "router.log")
    go_on = topology.common.nodes.topology.on_worker_exit == "continue"
    group = ServerGroup(members, router, display_for(), go_on=go_on)

    def ready(server: LocalServer, seconds: float) -> None:
        write([[], *_compared(topology, folder, group), *_ready_lines(topology, seconds)])

    outcome = run_until_end(group, ready, "the router and the servers")
    write(finding_lines(outcome.findings), sys.stderr)
    write(stopped_lines(outcome.exit_code, "the servers"))
    return outcome.exit_code


def leave_plans(topology: Topology) -> Path:
    """Writes the topology and the plan of each server. Returns the run folder."""
    folder = run_folder()
    write_in_run_folder(folder / "topology.json", json.dumps(topology.to_json(), indent=2) + "\n")
    for server in topology.servers:
        own = folder_of(folder, server)
        own.mkdir(parents=True, exist_ok=True)
        write_in_run_folder(own / "plan.json", json.dumps(server.plan.to_json(), indent=2) + "\n")
    return folder


def folder_of(folder: Path, server: Server) -> Path:
    return folder / f"{server.role}-{server.index}"


def _router_ports(topology: Topology) -> list[Finding | None]:
    router, node = topology.router, topology.common.nodes.topology.router
    key = "port" if node.port is None else "topology.router.port"
    obstacles = [port_obstacle(router.host, router.port, key)]
    if router.prometheus_port is not None:
        obstacles.append(port_obstacle(node.prometheus_host, router.prometheus_port, "topology.router.prometheus_port"))
    return obstacles


def _compared(topology: Topology, folder: Path, group: ServerGroup) -> Iterator[Line]:
    """Yields the comparison of each server with its plan. Raises ServerError with the name of a server that is not the
    planned one."""

    def lines_of(server: Server) -> list[Line]:
        host, port = str(server.plan.values["host"]), int(server.plan.values["port"])
        local = group.servers[server.name]
        return after_start(server.plan, host, port, folder_of(folder, server), owner=local.owner, server=local)

    return compared_lines(topology, lines_of)


def compared_lines(topology: Topology, lines_of: Callable[[Server], list[Line]]) -> Iterator[Line]:
    """Yields the comparison of each server with its plan, once for servers with the same result. Raises ServerError
    with the name of a server that is not the planned one."""
    names_by_lines: dict[tuple[Line, ...], list[str]] = {}
    for server in topology.servers:
        try:
            lines = lines_of(server)
        except ServerError as failure:
            raise of_server(server.name, failure) from None
        names_by_lines.setdefault(tuple(tuple(line) for line in lines), []).append(server.name)
    for lines_of_all, names in names_by_lines.items():
        yield [text(", ".join(names), "bold")]
        yield from (line for line in lines_of_all if line)
        yield []


def _ready_lines(topology: Topology, seconds: float) -> list[Line]:
    common = topology.servers[0].plan
    url = router_launch(topology).url
    servers = ", ".join(f"{server.name} at {server.url}" for server in topology.servers)
    return [
        [text(f"Ready after {seconds:.1f} s at {url}", "bold green")],
        [text(f"  {servers}", "dim")],
        [text(f"  {curl_line(common, url)}")],
        [text("  Ctrl-C stops the router and then the servers", "dim")],
        [],
    ]
