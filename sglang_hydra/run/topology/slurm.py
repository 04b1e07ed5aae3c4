"""Runs a topology as one Slurm job: each server is a step on its nodes; the router runs in the batch process's node.

The job works as in ``run.launch.slurm``, its servers as on one machine (``server_group``)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sglang_hydra.planning.passing.nodes import Head
from sglang_hydra.planning.passing.slurm_options import sbatch_settings_of
from sglang_hydra.planning.topology.router import absent
from sglang_hydra.planning.topology.servers import NODE, Server, Topology
from sglang_hydra.run.launch.hydra_run import in_hydra
from sglang_hydra.run.launch.launch_request import LaunchRequest
from sglang_hydra.run.launch.local import Launch, LocalServer, Outcome, run_until_end
from sglang_hydra.run.launch.slurm.inside import (
    BESIDE_OTHERS,
    LOG_NAME,
    JobDisplay,
    Node,
    ServerSpec,
    addresses_of,
    follower_ports,
    in_account,
    launch_of_ranks,
    leave_info,
    mark_ready,
    nodes_of_job,
)
from sglang_hydra.run.launch.slurm.record import Account, Record, Secrets, read_account, take_secrets
from sglang_hydra.run.launch.slurm.serve import (
    comparison,
    job_lines,
    look_at_cluster,
    reached_lines,
    refuse_recorded_secrets,
    run_job,
    server_spec,
)
from sglang_hydra.run.launch.slurm.submit import Job
from sglang_hydra.run.topology.serve import compared_lines, folder_of, leave_plans, router_launch
from sglang_hydra.run.topology.server_group import ROUTER, Member, ServerGroup
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.screen import Line, write

_NODE = re.compile(rf"(?<=http://){NODE}(\d+)(?=:)")


@dataclass(frozen=True)
class Part:
    """One server of a job. ``nodes`` counts the job's nodes from 0; ``head_port`` is the rendezvous port of several."""

    name: str
    role: str
    nodes: tuple[int, ...]
    head_port: int | None
    spec: ServerSpec


@dataclass(frozen=True)
class TopologySpec:
    """The servers of a job. It contains no secret and can be pickled. The words of ``router`` contain NODE0 for the
    first node's address."""

    parts: tuple[Part, ...]
    router: Launch
    nodes: int
    folder: Path
    go_on: bool
    secrets: Path | None


def serve_in_slurm(asked: LaunchRequest, topology: Topology) -> int:
    """Submits the topology as one job and follows it until its end. Returns the exit code. Raises as
    ``run.launch.slurm.serve`` does, and MachineError if the router is not installed."""
    common = topology.common
    for server in topology.servers:
        refuse_recorded_secrets(server.plan)
    options = sbatch_settings_of(topology)
    write(job_lines(options))
    look_at_cluster(common)
    missing = absent(topology.router)
    if missing is not None:
        raise MachineError(missing)
    return in_hydra(asked, lambda: _run(topology, options))


def topology_spec(topology: Topology, folder: Path, secrets: Path | None = None) -> TopologySpec:
    """Returns what a job needs to serve a topology; ``folder`` is the run folder, ``secrets`` the file with the key."""
    router = router_launch(topology, folder / "router.log")
    return TopologySpec(
        parts=tuple(
            Part(server.name, server.role, server.nodes, server.head_port, server_spec(server.plan, own))
            for server in topology.servers
            for own in [folder_of(folder, server)]
        ),
        router=replace(router, command=replace(router.command, secret=None)),
        nodes=topology.nodes,
        folder=folder,
        go_on=topology.common.nodes.topology.on_worker_exit == "continue",
        secrets=secrets,
    )


def serve_topology_in_job(spec: TopologySpec) -> None:
    """Runs the servers and the router until their end and keeps an account; this function is submitted. Exits with
    their code."""

    def run(record: Record) -> Outcome:
        members, router = parts_in_job(spec, record)
        group = ServerGroup(members, router, JobDisplay(record), go_on=spec.go_on)

        def ready(together: LocalServer, seconds: float) -> None:
            for part in spec.parts:
                server = group.servers[part.name]
                leave_info(part.spec, server.launch, server.owner)
            mark_ready(record, seconds)

        return run_until_end(group, ready, "the router and the servers")

    in_account(spec.folder, run)


def parts_in_job(spec: TopologySpec, record: Record) -> tuple[list[Member], Launch]:
    """Returns the launches of a job's servers and router. Raises MachineError if there are too few nodes or a name does
    not resolve."""
    secrets = take_secrets(spec.secrets)
    nodes = nodes_of_job(needed=spec.nodes)
    addresses = addresses_of(nodes[: spec.nodes])
    members = [Member(part.name, part.role, _launch(part, nodes, addresses, secrets)) for part in spec.parts]
    command = spec.router.command
    argv, shown = (
        [_NODE.sub(lambda found: addresses[int(found[1])], word) for word in words]
        for words in (command.argv, command.shown)
    )
    router = replace(spec.router, command=replace(command, argv=argv, shown=shown, secret=secrets.key))
    names = [node.name for node in nodes]
    record.update(nodes=names, node=names[0], address=addresses[0], host=router.host, port=router.port)
    return members, router


def _launch(part: Part, nodes: Sequence[Node], addresses: Sequence[str], secrets: Secrets) -> Launch:
    """Returns the launch of one server as a step of the job: on its nodes, beside other steps."""
    own = [nodes[number] for number in part.nodes]
    names = [node.name for node in own]
    spec = replace(part.spec, srun=[*BESIDE_OTHERS, f"--nodelist={','.join(names)}", *part.spec.srun])
    address, port = addresses[part.nodes[0]], spec.request.port
    ports = [port, *follower_ports(own, port)] if len(own) > 1 else [port]
    head = Head(address, part.head_port).address if part.head_port is not None else None
    job = Account(os.environ.get("SLURM_JOB_ID", ""), nodes=names, node=names[0], address=address, dist_init_addr=head)
    Record(spec.folder, replace(job, host=spec.request.host, port=port))
    launch = launch_of_ranks(spec, ports, head, secrets)
    return launch if part.nodes[0] == 0 else replace(launch, host=address, is_remote=True)


def _run(topology: Topology, options: Mapping[str, str | bool]) -> int:
    folder = leave_plans(topology)
    logs = {server.name: folder_of(folder, server) / LOG_NAME for server in topology.servers}
    return run_job(
        topology.common,
        folder,
        options,
        lambda secrets: partial(serve_topology_in_job, topology_spec(topology, folder, secrets)),
        lambda job, account: _ready_lines(topology, job, account, folder),
        {**logs, ROUTER: folder / "router.log"},
    )


def _ready_lines(topology: Topology, job: Job, account: Account, folder: Path) -> list[Line]:
    def lines_of(server: Server) -> list[Line]:
        own = folder_of(folder, server)
        return comparison(server.plan, read_account(own) or account, own)

    return [[], *compared_lines(topology, lines_of), *reached_lines(topology.servers[0].plan, job, account)]
