"""The nodes that Slurm gave to a job: their names and addresses, the address of the head, and ports on them."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sglang_hydra.planning.passing.nodes import Head
from sglang_hydra.run.launch.head import free_port_block, own_address
from sglang_hydra.run.launch.slurm.states import ask_slurm
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

_LOOPBACK = ("127.", "::1")


class Node(NamedTuple):
    """A node as Slurm knows it: its name, the address that Slurm itself reaches it by, and the machine's own name."""

    name: str
    address: str
    machine: str


def nodes_of_job(environ: Mapping[str, str] = os.environ, needed: int = 1) -> list[Node]:
    """This job's nodes in the order of its ranks. Raises MachineError outside of a job, and where there are fewer than
    ``needed``."""
    listed = environ.get("SLURM_JOB_NODELIST")
    answer = ask_slurm("scontrol", "show", "hostnames", listed) if listed else None
    if answer is None:
        message = "this is no Slurm job: it has no list of nodes"
        raise MachineError(Finding("error", "SLM005", message, ("launch",), "launch=slurm starts it inside of one"))
    names = answer.split()
    if len(names) < needed:
        message = f"{needed} nodes are needed, and this job has {len(names)}"
        raise MachineError(Finding("error", "SLM005", message, ("nnodes",), f"sbatch --nodes={needed}"))
    rows = ask_slurm("scontrol", "--oneliner", "show", "node", str(listed)) or ""
    known = {words["NodeName"]: words for line in rows.splitlines() if "NodeName" in (words := _words(line))}
    return [
        Node(name, known.get(name, {}).get("NodeAddr", name), known.get(name, {}).get("NodeHostName", name))
        for name in names
    ]


def head_on(nodes: Sequence[Node], ports: int, http_port: int, wanted: int | None = None) -> Head:
    """Where the other nodes reach this one: the address that it has on its way to the second node, and ports that
    are free here, or the one that is ``wanted``. Raises MachineError where that is the loopback address and the
    others are other machines."""
    host = own_address(nodes[1].address)
    others = {node.machine for node in nodes[1:]} - {nodes[0].machine}
    if host.startswith(_LOOPBACK) and others:
        host = own_address()
    if host.startswith(_LOOPBACK) and others:
        message = f"node {nodes[0].name} has no address that {nodes[1].name} ({nodes[1].address}) could reach"
        hint = "dist_init_addr=HOST:PORT with launch.slurm.sbatch.nodelist=..., or ask who runs the cluster"
        raise MachineError(Finding("error", "SLM006", message, ("dist_init_addr",), hint))
    return Head(host, wanted or free_port_block(ports, [http_port] if http_port else []))


def addresses_of(nodes: Sequence[Node]) -> list[str]:
    """An address of each node that the others reach it by; this machine is the first. Raises MachineError for a name
    that stands for none."""
    if len(nodes) == 1:
        return ["127.0.0.1"]
    own = own_address(nodes[1].address)
    try:
        return [own, *(socket.gethostbyname(node.address) for node in nodes[1:])]
    except OSError as failure:
        message = f"the nodes {', '.join(node.name for node in nodes)} have names without an address: {failure}"
        raise MachineError(Finding("error", "SLM006", message, ("launch.slurm",), "ask who runs the cluster")) from None


def follower_ports(nodes: Sequence[Node], port: int) -> list[int]:
    """The HTTP port of every rank but the first. It answers health checks only, and may not be the first one's where
    several of Slurm's nodes are one machine."""
    taken: dict[str, list[int]] = {nodes[0].machine: [port]}
    ports = []
    for node in nodes[1:]:
        here = taken.setdefault(node.machine, [])
        ports.append(free_port_block(1, here) if here else port)
        here.append(ports[-1])
    return ports


def _words(line: str) -> dict[str, str]:
    return {name: value for word in line.split() for name, equals, value in [word.partition("=")] if equals}
