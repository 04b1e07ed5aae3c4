"""Where a server stands on its machine: the GPUs and the ports that it takes, and those of the next beside them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sglang_hydra.arguments.ports import ZMQ_TCP_PORT_DELTA
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

FIRST_PORT = 30000
LAST_PORT = 65535
_MOST_RANKS = 4096

# SGLang 0.5.2 draws its NCCL port from this far above the HTTP port (server_args.py, lines 2594-2604).
_NCCL_FIRST, _NCCL_LAST = 100, 1000
_NONE = -1  # a port that does not count
# With DP attention: tokenizer, detokenizer, RPC, metrics and scheduler, then one for each rank (lines 2636-2653).
_ZMQ_PORTS = 5


class PortUse(NamedTuple):
    """Ports of this machine that a server takes, and what for."""

    what: str
    ports: range

    @property
    def shown(self) -> str:
        first, last = self.ports[0], self.ports[-1]
        return f"{self.what} {first}" + (f"-{last}" if last > first else "")


@dataclass(frozen=True)
class Place:
    """The GPUs and ports of one server. ``nccl`` is None where SGLang has to draw the port itself."""

    gpus: tuple[int, ...]
    port: int
    nccl: int | None
    bootstrap: int | None
    base_gpu_id: int


@dataclass(frozen=True)
class Needs:
    """What one server needs. ``values`` are those of a plan of its kind; the others are where its numbers begin.

    ``fixed`` names the numbers that were set for this role: they are given out from there even where another server has
    them, and a check reports it.
    """

    values: Mapping[str, Any]
    base_gpu_id: int
    port: int
    disaggregation_bootstrap_port: int | None = None
    nccl_port: int | None = None
    fixed: frozenset[str] = frozenset()


def gpu_offsets(values: Mapping[str, Any]) -> tuple[int, ...]:
    """The GPUs of a server on one node, counted from its ``base_gpu_id``; empty for one that uses none.

    As SGLang 0.5.2 numbers them (data_parallel_controller.py, lines 131-156 and 241-247): a tensor parallel rank is a
    step further, a pipeline stage tp_size further, a data parallel rank tp_size steps further.
    """
    tp, pp, step = (values[name] for name in ("tp_size", "pp_size", "gpu_id_step"))
    dp = 1 if values["enable_dp_attention"] else values["dp_size"]
    if values["device"] == "cpu" or min(tp, pp, dp, step) < 1 or tp * pp * dp > _MOST_RANKS:
        return ()
    found = {
        replica * tp * step + stage * tp + rank * step
        for replica in range(dp)
        for stage in range(pp)
        for rank in range(tp)
    }
    return tuple(sorted(found))


def draws_nccl_port(values: Mapping[str, Any]) -> bool:
    """Whether a fixed ``nccl_port`` would be taken by several ranks of one server: plain data parallelism."""
    return bool(values["dp_size"] > 1 and not values["enable_dp_attention"])


def ports_of(values: Mapping[str, Any]) -> list[PortUse]:
    """Every port that a server of these resolved arguments listens on, on one node of its own.

    Where SGLang draws the NCCL port, all that it can draw at its first try are counted.
    """
    port, nccl, address = values["port"], values["nccl_port"], values["dist_init_addr"]
    found = [PortUse("HTTP", _one(port))]
    rendezvous = _port_in(address)
    if rendezvous is not None:
        found.append(PortUse("rendezvous", _one(rendezvous)))
    elif nccl is not None:
        found.append(PortUse("NCCL", _one(nccl)))
    else:
        found.append(PortUse("NCCL", range(port + _NCCL_FIRST, port + _NCCL_LAST + 1)))
    if values["enable_dp_attention"]:
        first = (port + ZMQ_TCP_PORT_DELTA if rendezvous is None else rendezvous) + 1
        found.append(PortUse("ZeroMQ", range(first, first + _ZMQ_PORTS + max(values["dp_size"], 1))))
    if values["disaggregation_mode"] == "prefill":
        found.append(PortUse("bootstrap", _one(values["disaggregation_bootstrap_port"])))
    return found


class Floor:
    """One machine's GPUs and ports while they are given out. ``is_free`` tells what else is in use there."""

    def __init__(self, taken_ports: Iterable[int] = (), is_free: Callable[[int], bool] = lambda port: True) -> None:
        self._gpus: set[int] = set()
        self._ports: set[int] = set(taken_ports)
        self._is_free = is_free

    def give(self, needs: Needs, own: Floor) -> Place:
        """The next place for a server; ``own`` holds what its role has got so far.

        Raises ConfigError where no port is left.
        """
        offsets = gpu_offsets(needs.values)
        seen = own._gpus if "base_gpu_id" in needs.fixed else self._gpus
        bases = itertools.count(needs.base_gpu_id)
        base = next(base for base in bases if seen.isdisjoint(base + offset for offset in offsets))
        gpus = tuple(base + offset for offset in offsets)
        self._gpus.update(gpus)
        own._gpus.update(gpus)
        # What moves with the HTTP port; the rest is found below, or stands in dist_init_addr.
        moving = {**needs.values, "nccl_port": None, "disaggregation_mode": "null"}
        meeting = _port_in(moving["dist_init_addr"]) is not None
        pinned = not draws_nccl_port(moving) and not meeting
        if pinned or meeting:
            moving.update(nccl_port=_NONE, dist_init_addr=None)
        if meeting:
            moving["enable_dp_attention"] = False
        port = self._first("port", needs, own, lambda port: [use.ports for use in ports_of({**moving, "port": port})])
        nccl = bootstrap = None
        if pinned:
            start = needs.nccl_port if needs.nccl_port is not None else port + _NCCL_FIRST
            nccl = self._first("nccl_port", replace(needs, nccl_port=start), own)
        if needs.disaggregation_bootstrap_port is not None:
            bootstrap = self._first("disaggregation_bootstrap_port", needs, own)
        return Place(gpus, port, nccl, bootstrap, base)

    def port(self, start: int) -> int:
        """The first free port from ``start`` on."""
        return self._first("port", Needs({}, 0, start), self)

    def _first(
        self,
        name: str,
        needs: Needs,
        own: Floor,
        ports: Callable[[int], list[range]] = lambda port: [_one(port)],
    ) -> int:
        """The first number from the one that is wished for on with which all of ``ports`` are free."""
        start, fixed = getattr(needs, name), name in needs.fixed
        if not 0 < start <= LAST_PORT:
            message = f"{name}={start} is no port to start from: ports go from 1 to {LAST_PORT}"
            raise ConfigError(Finding("error", "TOP006", message, (name,), f"{name}={FIRST_PORT}"))
        taken = own._ports if fixed else self._ports
        for candidate in range(start, LAST_PORT + 1):
            wanted = {number for span in ports(candidate) for number in span if number != _NONE}
            if max(wanted) > LAST_PORT:
                break
            if taken.isdisjoint(wanted) and (fixed or all(map(self._is_free, wanted))):
                self._ports |= wanted
                own._ports |= wanted
                return candidate
        message = f"from {name}={start} on no port up to {LAST_PORT} is left for another server"
        raise ConfigError(Finding("error", "TOP006", message, (name,), f"{name}={FIRST_PORT}, or fewer servers"))


def _port_in(address: Any) -> int | None:
    """The port of a HOST:PORT; None for anything else, which a check of its own refuses."""
    tail = address.rpartition(":")[2] if isinstance(address, str) else ""
    return int(tail) if tail.isascii() and tail.isdigit() and len(tail) <= len(str(LAST_PORT)) else None


def _one(port: int) -> range:
    return range(port, port + 1)
