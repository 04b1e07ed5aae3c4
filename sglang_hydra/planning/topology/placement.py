"""Places a server: its nodes, GPUs and ports, and those of the next server beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.layout import Layout
from sglang_hydra.arguments.ports import ZMQ_TCP_PORT_DELTA
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.json_types import JsonObject

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan

FIRST_PORT = 30000
LAST_PORT = 65535

# SGLang 0.5.2 draws its NCCL port within these distances above the HTTP port (server_args.py, lines 2594-2604).
_NCCL_FIRST, _NCCL_LAST = 100, 1000
_NONE = -1  # a port that does not count


class PortUse(NamedTuple):
    """Ports of this machine that a server uses, and their purpose."""

    what: str
    ports: range

    @property
    def shown(self) -> str:
        first, last = self.ports[0], self.ports[-1]
        return f"{self.what} {first}" + (f"-{last}" if last > first else "")


@dataclass(frozen=True)
class Place:
    """The nodes, GPUs and ports of one server. ``nccl`` is None where SGLang must draw the port itself; ``head`` is the
    rendezvous port of a server on several nodes, the first of the ports that it uses there."""

    gpus: tuple[int, ...]
    port: int
    nccl: int | None
    bootstrap: int | None
    base_gpu_id: int
    nodes: tuple[int, ...] = (0,)
    head: int | None = None


@dataclass(frozen=True)
class Needs:
    """The needs of one server. ``values``, ``layout`` and the ``offsets`` of its GPUs come from a plan of its role; the
    others are the starts of its numbers.

    ``fixed`` names the numbers that were set for this role: they count from there even where another server has them,
    and a check reports it."""

    values: JsonObject
    base_gpu_id: int
    port: int
    disaggregation_bootstrap_port: int | None = None
    nccl_port: int | None = None
    layout: Layout = field(default_factory=Layout)
    offsets: tuple[int, ...] = ()
    fixed: frozenset[str] = frozenset()


def gpu_offsets(plan: Plan) -> tuple[int, ...]:
    """Returns the GPUs of a server on each of its nodes, relative to its first one; empty without GPUs."""
    layout = plan.layout
    if "cpu" in (plan.gpu.device, plan.values["device"]) or not layout.possible:
        return ()
    return tuple(sorted({number - layout.first_gpu for number in layout.gpu_numbers()}))


def ports_of(values: JsonObject, layout: Layout) -> list[PortUse]:
    """Returns every port that a server of these resolved arguments listens on, on a node of its own.

    Where SGLang draws the NCCL port, all candidates of its first try count."""
    port, nccl, address = values["port"], values["nccl_port"], values["dist_init_addr"]
    found = [PortUse("HTTP", _one(port))]
    rendezvous = _port_in(address)
    if rendezvous is not None:
        found.append(PortUse("rendezvous", _one(rendezvous)))
    elif nccl is not None:
        found.append(PortUse("NCCL", _one(nccl)))
    else:
        found.append(PortUse("NCCL", range(port + _NCCL_FIRST, port + _NCCL_LAST + 1)))
    if layout.head_ports > 1:
        first = port + ZMQ_TCP_PORT_DELTA if rendezvous is None else rendezvous
        found.append(PortUse("ZeroMQ", range(first + 1, first + layout.head_ports)))
    if values["disaggregation_mode"] == "prefill":
        found.append(PortUse("bootstrap", _one(values["disaggregation_bootstrap_port"])))
    return found


class Floor:
    """Assigns GPUs by node, and ports. ``is_free`` tests whether a port is in use elsewhere. A port is assigned once
    for all nodes: several of Slurm's nodes may be one machine."""

    def __init__(self, taken_ports: Iterable[int] = (), is_free: Callable[[int], bool] = lambda port: True) -> None:
        self._gpus: set[tuple[int, int]] = set()
        self._ports: set[int] = set(taken_ports)
        self._is_free = is_free

    def give(self, needs: Needs, own: Floor, nodes: tuple[int, ...] = (0,)) -> Place:
        """Returns the next place for a server on ``nodes``; ``own`` holds the places of its role so far.

        Raises ConfigError where no port is left."""
        offsets = needs.offsets
        seen = own._gpus if "base_gpu_id" in needs.fixed else self._gpus
        bases = itertools.count(needs.base_gpu_id)
        base = next(
            base for base in bases if seen.isdisjoint((node, base + offset) for node in nodes for offset in offsets)
        )
        gpus = tuple(base + offset for offset in offsets)
        self._gpus.update((node, gpu) for node in nodes for gpu in gpus)
        own._gpus.update((node, gpu) for node in nodes for gpu in gpus)
        # These ports move with the HTTP port; the rest is found below, or is in dist_init_addr.
        moving = {**needs.values, "nccl_port": None, "disaggregation_mode": "null"}
        meeting = _port_in(moving["dist_init_addr"]) is not None
        several = len(nodes) > 1 and not meeting
        # Each copy of plain data parallelism would use a fixed nccl_port.
        pinned = needs.layout.copies == 1 and not meeting and not several
        if pinned or meeting or several:
            moving.update(nccl_port=_NONE, dist_init_addr=None)
        layout = needs.layout._replace(attention_groups=1) if meeting or several else needs.layout
        port = self._first(
            "port", needs, own, lambda port: [use.ports for use in ports_of({**moving, "port": port}, layout)]
        )
        nccl = bootstrap = head = None
        if several:
            count = needs.layout.head_ports
            above = replace(needs, nccl_port=port + _NCCL_FIRST)
            head = self._first("nccl_port", above, own, lambda first: [range(first, first + count)])
        if pinned:
            start = needs.nccl_port if needs.nccl_port is not None else port + _NCCL_FIRST
            nccl = self._first("nccl_port", replace(needs, nccl_port=start), own)
        if needs.disaggregation_bootstrap_port is not None:
            bootstrap = self._first("disaggregation_bootstrap_port", needs, own)
        return Place(gpus, port, nccl, bootstrap, base, nodes, head)

    def port(self, start: int) -> int:
        """Returns the first free port from ``start`` on."""
        return self._first("port", Needs({}, 0, start), self)

    def _first(
        self, name: str, needs: Needs, own: Floor, ports: Callable[[int], list[range]] = lambda port: [_one(port)]
    ) -> int:
        """Returns the first number, from the requested one on, whose ``ports`` are all free."""
        start, fixed = getattr(needs, name), name in needs.fixed
        if not 0 < start <= LAST_PORT:
            message = f"{name}={start} is no port to start from: ports go from 1 to {LAST_PORT}"
            raise ConfigError.of("TOP006", message, name, hint=f"{name}={FIRST_PORT}")
        taken = own._ports if fixed else self._ports
        for candidate in range(start, LAST_PORT + 1):
            wanted = {number for span in ports(candidate) for number in span if number != _NONE}
            if max(wanted) > LAST_PORT:
                break
            if taken.isdisjoint(wanted) and (fixed or all(map(self._is_free, wanted))):
                self._ports |= wanted
                own._ports |= wanted
                return candidate
        message = f"no port from {name}={start} to {LAST_PORT} is free for another server"
        raise ConfigError.of("TOP006", message, name, hint=f"{name}={FIRST_PORT}, or fewer servers")


def _port_in(address: object) -> int | None:
    """Returns the port of a HOST:PORT; None for other values, which another check refuses."""
    tail = address.rpartition(":")[2] if isinstance(address, str) else ""
    return int(tail) if tail.isascii() and tail.isdigit() and len(tail) <= len(str(LAST_PORT)) else None


def _one(port: int) -> range:
    return range(port, port + 1)
