"""Several nodes: one launch each from one intent, and the address at which they find the first of them.

Every node gets the same arguments but for ``node_rank``; ``dist_init_addr`` is the same everywhere, and so is
``base_gpu_id``: each node counts its own GPUs. Only node 0 serves. The others answer /health with 200 once their ranks
are loaded, and nothing else (SGLang 0.5.2: entrypoints/engine.py lines 805-826; 0.5.23: the same, and there a SIGTERM
on them waits for node 0 to end first).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.engines.base import Machine
from sglang_hydra.engines.planned import plan_engine
from sglang_hydra.errors import MachineError
from sglang_hydra.findings import Finding
from sglang_hydra.ports import head_address, host_and_port

if TYPE_CHECKING:
    from sglang_hydra.cli import Invocation
    from sglang_hydra.compose import Composer
    from sglang_hydra.plans import Plan

UNKNOWN_HEAD = "HEAD:PORT"
"""Stands for the address of node 0 in a command that is shown before it is known."""

# Below the ports that Linux gives to outgoing connections, and below SGLang's own default of 30000.
_FIRST_PORT, _LAST_PORT = 20000, 29000
# With DP attention SGLang 0.5.2 listens on this many ports above the one of dist_init_addr, and one a DP rank more.
_PORTS_ABOVE_HEAD = 5
# SGLang draws the port of NCCL up to this far above the HTTP port.
_NCCL_REACH = 1100
_TRIES = 200
_CONNECT_S = 5.0
# RFC 5737: an address that no machine has. Nothing is sent to it; the system only says by which way it would go.
_NOBODY = "192.0.2.1"


class Head(NamedTuple):
    """Where node 0 is reached by the others; an IPv6 ``host`` without its brackets."""

    host: str
    port: int

    @property
    def address(self) -> str:
        """As ``dist_init_addr`` takes it."""
        return host_and_port(self.host, self.port)


def head_of(values: Mapping[str, Any]) -> Head | None:
    """The head that ``dist_init_addr`` names; None where it is not set. Raises ConfigError where it is no address."""
    if values["dist_init_addr"] is None:
        return None
    host, port = head_address(values)
    return Head(host.strip("[]"), port)


def node_intents(intent: Mapping[str, Any], nnodes: int, head: str | None = None) -> list[dict[str, Any]]:
    """The intent of each node, node 0 first. ``head`` is the address to use where the intent has none."""
    if nnodes <= 1:
        return [dict(intent)]
    address = intent.get("dist_init_addr") or head or UNKNOWN_HEAD
    return [{**intent, "nnodes": nnodes, "node_rank": rank, "dist_init_addr": address} for rank in range(nnodes)]


def node_commands(plan: Plan, head: str | None = None) -> list[tuple[str, ...]]:
    """The command that a person would type on each node, node 0 first, without any secret."""
    from dataclasses import replace

    planned = plan_engine(plan.nodes["engine"])
    request = planned.request(plan.resolution, plan.environment, Machine(None), plan.nodes["extra"])
    return [
        tuple(planned.engine.command(replace(request, intent=intent)).shown)
        for intent in node_intents(request.intent, int(plan.values["nnodes"]), head)
    ]


def node_findings(values: Mapping[str, Any], launch: str, engine: str) -> list[Finding]:
    """What several nodes need beyond SGLang's own checks, for the launcher and the engine of these names."""
    if values["nnodes"] <= 1:
        return []
    if engine == "transformers":
        message = f"nnodes={values['nnodes']}: the embedded engine (transformers serve) runs on one node"
        return [Finding("error", "NOD005", message, ("nnodes", "engine"), "engine=sglang, or nnodes=1 tp_size=1")]
    if launch == "local" and values["dist_init_addr"] is None and values["node_rank"] > 0:
        message = f"node {values['node_rank']} cannot know where node 0 is: dist_init_addr is not set"
        hint = "dist_init_addr=HOST:PORT, as node 0 shows it; launch=slurm finds it by itself"
        return [Finding("error", "NOD006", message, ("dist_init_addr", "node_rank"), hint)]
    return []


def with_head(composer: Composer, invocation: Invocation, plan: Plan) -> Plan:
    """For a node that is started here: node 0 with an address for the others, any other node with a head that can be
    reached. Raises MachineError where node 0 cannot listen there or another node does not get there."""
    if plan.values["nnodes"] <= 1:
        return plan
    head = head_of(plan.values)
    if plan.values["node_rank"] > 0:
        if head is not None:
            _must_be_reachable(head)
        return plan
    if head is not None:
        _must_be_free(head)
        _must_lead_here(head)
        return plan
    from sglang_hydra.app import make_plan
    from sglang_hydra.overrides import Request

    chosen = Head(own_address(), free_port_block(ports_for_head(plan.values), [int(plan.values["port"])]))
    place = "this machine's address and a port that was free"
    invocation.requests.append(Request.typed("dist_init_addr", chosen.address, place))
    engine = Request(f"engine={plan.engine.name}", "engine=auto", "engine")
    rest = [request for request in invocation.requests if request.text.partition("=")[0] != "engine"]
    return make_plan(composer, [*rest, engine], seed=int(plan.values["random_seed"]))


def own_address(toward: str = _NOBODY) -> str:
    """The address of this machine on the way to ``toward``, a name or an address: what is there reaches it back.

    Nothing is sent. Where there is no such way, the loopback address.
    """
    import socket

    try:
        family, kind, protocol, _, address = socket.getaddrinfo(toward, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def ports_for_head(values: Mapping[str, Any]) -> int:
    """How many ports in a row, from that of dist_init_addr on, node 0 listens on (ports.py has their meaning)."""
    return 1 + _PORTS_ABOVE_HEAD + int(values["dp_size"]) if values["enable_dp_attention"] else 1


def free_port_block(count: int, http_ports: Iterable[int] = ()) -> int:
    """The first of ``count`` ports in a row that are free on this machine now and that no server on ``http_ports``
    will use. Raises MachineError where none is found."""
    taken = [range(port, port + _NCCL_REACH) for port in http_ports]
    for _ in range(_TRIES):
        first = random.randrange(_FIRST_PORT, _LAST_PORT)
        ports = range(first, first + count)
        if not any(port in reach for port in ports for reach in taken) and all(map(_is_free, ports)):
            return first
    message = f"no {count} ports in a row are free between {_FIRST_PORT} and {_LAST_PORT}"
    raise MachineError(Finding("error", "NOD007", message, ("dist_init_addr",), "dist_init_addr=HOST:PORT names one"))


def _is_free(port: int) -> bool:
    from sglang_hydra.launch.port import port_obstacle

    return port_obstacle("0.0.0.0", port) is None


def _must_be_free(head: Head) -> None:
    """torch's store listens on every address of node 0."""
    from dataclasses import replace

    from sglang_hydra.launch.port import port_obstacle

    obstacle = port_obstacle("0.0.0.0", head.port)
    if obstacle is not None:
        hint = f"dist_init_addr={Head(head.host, head.port + 1).address} on every node, or stop the other server"
        message = f"dist_init_addr={head.address}: {obstacle.message}"
        raise MachineError(replace(obstacle, id="NOD007", message=message, fields=("dist_init_addr",), hint=hint))


def _must_lead_here(head: Head) -> None:
    """For node 0: torch's store listens on every address, and even its own process goes to it by the named one.

    An address of this machine is that; any other (behind a translation, a service of Kubernetes) is tried.
    """
    import socket

    try:
        if _is_own(head.host) or _comes_back(head):
            return
        why = "what is sent there does not come back"
    except socket.gaierror as failure:
        why = failure.strerror or str(failure)
    except OSError as failure:
        why = (
            f"no answer in {_CONNECT_S:.0f} s"
            if isinstance(failure, TimeoutError)
            else failure.strerror or str(failure)
        )
    message = f"node 0 is this machine, and dist_init_addr={head.address} does not lead to it: {why}"
    own = Head(own_address(), head.port).address
    hint = f"dist_init_addr={own} on every node; or node_rank=1 where this is another node"
    raise MachineError(Finding("error", "NOD008", message, ("dist_init_addr", "node_rank"), hint))


def _is_own(host: str) -> bool:
    """Whether a name or an address is one of this machine's: only those can be bound. Raises OSError for no name."""
    import contextlib
    import socket

    for family, _, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
            return True
    return False


def _comes_back(head: Head) -> bool:
    """Whether a connection to the head's address ends at a listener of ours. Raises OSError where there is none."""
    import secrets
    import socket
    import struct

    word = secrets.token_bytes(16)
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", head.port), family=family, backlog=1, dualstack_ipv6=both) as listener:
        listener.settimeout(_CONNECT_S)
        with socket.create_connection((head.host, head.port), _CONNECT_S) as ours:
            # The connection leaves nothing behind that would keep the port from the server.
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ours.sendall(word)
            with listener.accept()[0] as theirs:
                theirs.settimeout(_CONNECT_S)
                return theirs.recv(len(word), socket.MSG_WAITALL) == word


def _must_be_reachable(head: Head) -> None:
    """A head that is up but does not listen yet is fine: torch asks again until it does."""
    import socket

    try:
        socket.create_connection((head.host, head.port), _CONNECT_S).close()
    except ConnectionRefusedError:
        return
    except OSError as failure:
        why = f"no answer in {_CONNECT_S:.0f} s" if isinstance(failure, TimeoutError) else failure.strerror
        message = f"node 0 cannot be reached: host {head.host}, port {head.port}: {why or failure}"
        hint = "dist_init_addr=HOST:PORT as node 0 shows it; firewalls must let the nodes reach each other"
        raise MachineError(Finding("error", "NOD008", message, ("dist_init_addr",), hint)) from failure


def command_rows(plan: Plan) -> Iterator[tuple[str, Sequence[str]]]:
    """The node and its command, for people: every node of a few, the first two of many."""
    commands = node_commands(plan)
    here = int(plan.values["node_rank"]) if plan.nodes["launch"]["name"] == "local" else None
    shown = len(commands) if len(commands) <= 4 else 2
    for rank, command in enumerate(commands[:shown]):
        role = " (head)" if rank == 0 else ""
        yield f"node {rank}{role}{', this one' if rank == here else ''}", command
    if shown < len(commands):
        yield f"nodes {shown} to {len(commands) - 1}: the same, each with its own --node-rank", ()
