"""Defines the types of a planned sweep for the runner: points, grouped by the server that they share.

Ids: ``server_id`` of the plan, ``workload_id`` of the load, ``point_id`` of both and the repeat's number. Equal ids
mean the same measurement, in any spelling."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan, digest
from sglang_hydra.text.json_types import JsonObject

if TYPE_CHECKING:
    from sglang_hydra.planning.topology.servers import Topology

_SLO = ("ttft_ms", "itl_ms", "e2e_ms")


def workload_id_of(bench: Mapping[str, object]) -> str:
    """Returns 16 hex digits, equal for ``bench`` nodes with equal requests."""
    from sglang_hydra.measure.bench.load import workload_record

    return digest(workload_record(bench))


def point_id_of(server_id: str, workload_id: str, repeat: int) -> str:
    """Returns 16 hex digits, equal for the same repeat of the same load on the same server."""
    return hashlib.sha256(f"{server_id} {workload_id} {repeat}".encode()).hexdigest()[:16]


def has_slo(workload: JsonObject) -> bool:
    """Returns whether a load has a latency limit."""
    return any(workload["slo"].get(name) is not None for name in _SLO)


@dataclass(frozen=True)
class Source:
    """The source of every point: the app's configs and the overrides that all points share. It can be pickled, so that
    another process plans the same. ``seed`` replaces every drawn seed."""

    requests: tuple[Request, ...] = ()
    config_dirs: tuple[str, ...] = ()
    config_name: str = PRIMARY_NAME
    seed: int = 0

    def _composer(self) -> Composer:
        composer = Composer(self.config_dirs, self.config_name)
        composer.for_start = True
        return composer

    def plan(self, requests: Sequence[Request]) -> Plan:
        """Returns the plan with these overrides added. Raises ConfigError as composing does."""
        return make_plan(self._composer(), [*self.requests, *requests], seed=self.seed)

    def topology(self, requests: Sequence[Request], is_free: Callable[[int], bool]) -> Topology:
        """Returns the servers behind a router for these overrides. Raises ConfigError as composing does."""
        from sglang_hydra.planning.topology.plan import plan_topology

        return plan_topology(self._composer(), [*self.requests, *requests], seed=self.seed, is_free=is_free)


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement. ``words`` are its own overrides, ``workload`` its ``bench`` node; ``repeat`` counts from 1."""

    words: tuple[str, ...]
    workload: JsonObject
    repeat: int
    server_id: str
    workload_id: str
    point_id: str


@dataclass(frozen=True)
class ServerGroup:
    """The points of one server start, in the order of measurement. ``requests`` plan that server; ``gpus`` counts those
    of all its nodes, ``gpus_of_node`` those of the node with the most."""

    server_id: str
    requests: tuple[Request, ...]
    gpus: int
    nodes: int
    points: tuple[Point, ...]
    gpus_of_node: int


@dataclass(frozen=True)
class Refused:
    """Why points were left out: the id of the finding (or ``where``), their number, one of them with its message, and
    who set the keys concerned."""

    id: str
    count: int
    words: tuple[str, ...]
    message: str
    hint: str | None = None
    who: str | None = None


@dataclass(frozen=True)
class Estimate:
    """The estimated time of a sweep, under the assumptions in its settings: hours with one server at a time, and GPU
    hours."""

    hours: float
    gpu_hours: float


@dataclass(frozen=True)
class HydraRun:
    """The multirun around a sweep, as Hydra passes it to a sweeper; it serves to instantiate the launcher."""

    config: Any
    context: Any
    task_function: Any


@dataclass(frozen=True)
class Sweep:
    """A planned sweep: every launchable point once, in an order that starts each server once.

    ``words`` are the typed overrides, ``hydra_words`` those for Hydra itself (its launcher); ``settings`` is the
    ``sweep`` node; ``left_out`` pairs the words of every refused point with the ids that refused it."""

    source: Source
    words: tuple[str, ...]
    settings: JsonObject
    groups: tuple[ServerGroup, ...]
    total: int
    merged: int
    refused: tuple[Refused, ...]
    estimate: Estimate
    folder: Path
    hydra_words: tuple[str, ...] = ()
    left_out: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    running: HydraRun | None = field(default=None, compare=False)

    def points(self) -> Iterator[Point]:
        """Yields every point, in the order of measurement."""
        for group in self.groups:
            yield from group.points

    def plan(self, group: ServerGroup) -> Plan:
        """Plans a group's server again."""
        return self.source.plan(group.requests)
