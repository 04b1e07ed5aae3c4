"""Chooses the address of node 0 of a multi-node server, or checks a given one before anything starts."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterable
from dataclasses import replace

from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.passing.nodes import Head, head_of
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch.launch_request import LaunchRequest
from sglang_hydra.run.launch.port import port_obstacle
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

# Below Linux's ports for outgoing connections, and below SGLang's default of 30000.
_FIRST_PORT, _LAST_PORT = 20000, 29000
# SGLang draws the port of NCCL up to this far above the HTTP port.
_NCCL_REACH = 1100
_TRIES = 200
_CONNECT_S = 5.0
# RFC 5737: an address that no machine has. Nothing is sent to it; the system only names the route.
_NOBODY = "192.0.2.1"


def with_head(asked: LaunchRequest, plan: Plan) -> Plan:
    """Returns the plan for the node that starts here: node 0 with an address for the others, any other node with a
    reachable head. Raises MachineError if node 0 cannot listen there or another node cannot reach the head."""
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
    wanted = plan.nodes.launch.head_port
    port = wanted or free_port_block(plan.layout.head_ports, [int(plan.values["port"])])
    chosen = Head(own_address(), port)
    _must_be_free(chosen)
    place = f"this machine's address and {'launch.head_port' if wanted else 'a port that was free'}"
    asked.requests.append(Request.typed("dist_init_addr", chosen.address, place))
    return asked.planned_again(plan)


def own_address(toward: str = _NOBODY) -> str:
    """Returns this machine's address on the route to ``toward``, a name or an address; the other side reaches us by it.

    Sends nothing. Returns the loopback address without such a route."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(toward, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def free_port_block(count: int, http_ports: Iterable[int] = ()) -> int:
    """Returns the first of ``count`` consecutive ports that are free on this machine now and outside the reach of
    servers on ``http_ports``. Raises MachineError if there is none."""
    taken = [range(port, port + _NCCL_REACH) for port in http_ports]
    for _ in range(_TRIES):
        first = random.randrange(_FIRST_PORT, _LAST_PORT)
        ports = range(first, first + count)
        if not any(port in reach for port in ports for reach in taken) and all(map(is_free, ports)):
            return first
    message = f"no {count} ports in a row are free between {_FIRST_PORT} and {_LAST_PORT}"
    raise MachineError(Finding("error", "NOD007", message, ("dist_init_addr",), "dist_init_addr=HOST:PORT names one"))


def free_port() -> int:
    """Returns a free port of this machine below the system's ports for outgoing connections, because the server listens
    only later. Raises MachineError if there is none."""
    return free_port_block(1)


def is_free(port: int) -> bool:
    """Returns whether nobody listens on the port, on any address of this machine."""
    return port_obstacle("0.0.0.0", port) is None


def _must_be_free(head: Head) -> None:
    """Checks that the port is free on every address: torch's store listens on all of node 0's addresses."""
    obstacle = port_obstacle("0.0.0.0", head.port)
    if obstacle is not None:
        hint = f"dist_init_addr={Head(head.host, head.port + 1).address} on every node, or stop the other server"
        message = f"dist_init_addr={head.address}: {obstacle.message}"
        raise MachineError(replace(obstacle, id="NOD007", message=message, fields=("dist_init_addr",)).said(hint))


def _must_lead_here(head: Head) -> None:
    """Checks that node 0's address is one of this machine's: torch's store listens on every address, and even its own
    process connects to the named one."""
    try:
        if is_own_address(head.host):
            return
        why = "it is the address of another machine"
    except OSError as failure:
        why = _reason(failure)
    message = f"node 0 is this machine, and dist_init_addr={head.address} does not lead to it: {why}"
    own = Head(own_address(), head.port).address
    hint = f"dist_init_addr={own} on every node; or node_rank=1 if this is another node"
    raise MachineError(Finding("error", "NOD008", message, ("dist_init_addr", "node_rank"), hint))


def is_own_address(host: str) -> bool:
    """Returns whether a name or an address is this machine's: only those can be bound. Raises OSError for an unknown
    name."""
    for family, _, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
            return True
    return False


def _reason(failure: OSError) -> str:
    late = isinstance(failure, TimeoutError)
    return f"no answer in {_CONNECT_S:.0f} s" if late else failure.strerror or str(failure)


def _must_be_reachable(head: Head) -> None:
    """Checks that the head's host answers. A refused connection is fine: torch tries again."""
    try:
        socket.create_connection((head.host, head.port), _CONNECT_S).close()
    except ConnectionRefusedError:
        return
    except OSError as failure:
        message = f"node 0 cannot be reached: host {head.host}, port {head.port}: {_reason(failure)}"
        hint = "dist_init_addr=HOST:PORT as node 0 shows it; firewalls must let the nodes reach each other"
        raise MachineError(Finding("error", "NOD008", message, ("dist_init_addr",), hint)) from failure
