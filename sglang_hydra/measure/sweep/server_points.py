"""Measures the open points of one server of a sweep: takes GPUs, plans it here, records failures."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.facts.nvml import MIB, NoNvml, nvml_library, text_of
from sglang_hydra.facts.trust import begin_to_start
from sglang_hydra.measure.sweep.claims import Claim, Claims
from sglang_hydra.measure.sweep.files import cannot_write
from sglang_hydra.measure.sweep.job import Policy, Stop, Watcher, Work
from sglang_hydra.measure.sweep.points import Point, ServerGroup, Sweep
from sglang_hydra.measure.sweep.search import search_of
from sglang_hydra.measure.sweep.serving import take_points
from sglang_hydra.measure.sweep.store import OPEN, State, Store, failure_record
from sglang_hydra.planning.engines.planned import plan_engine
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.servers import Topology
from sglang_hydra.run.launch.head import free_port, is_free
from sglang_hydra.text.errors import ConfigError, MachineError, SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import is_digits

_MOST = 64
_POLL_S = 0.5
CLAIM_S = 1.0
"""Seconds between two looks at a claim of another runner."""
_MEMORY_S = 120.0
_SLACK_MIB = 256.0
"""A driver's own memory varies by less than this, in MiB."""


class GpuSets:
    """Assigns sets of the ``visible`` GPUs by claims in the sweep's folder: the runners of one machine share these."""

    def __init__(self, claims: Claims, visible: Sequence[int]) -> None:
        self._claims, self._visible = claims, tuple(visible)

    def __len__(self) -> int:
        return len(self._visible)

    def take(self, count: int) -> tuple[tuple[int, ...], list[Claim]] | None:
        """Returns ``count`` neighbouring free GPUs with their claims, or None; the empty set for 0."""
        firsts = range(0, len(self._visible) - count + 1, max(1, count))
        sets = (self._visible[first : first + count] for first in firsts)
        return next(((wanted, held) for wanted in sets if (held := self._take_all(wanted)) is not None), None)

    def give_back(self, held: Sequence[Claim]) -> None:
        """Releases the GPUs."""
        for claim in held:
            self._claims.release(claim)

    def _take_all(self, wanted: Sequence[int]) -> list[Claim] | None:
        held: list[Claim] = []
        for gpu in wanted:
            claim = self._claims.take(f"gpus/{_place()}/{gpu}")
            if claim is None:
                self.give_back(held)
                return None
            held.append(claim)
        return held


def visible_gpus(count: int | None) -> tuple[int, ...]:
    """Returns the numbers of the GPUs that a server sees here, in its order: those of CUDA_VISIBLE_DEVICES, else the
    first ``count`` (None: all possible). A UUID becomes the driver's number; names that the driver does not know
    (MIG-...) count from 0."""
    named = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    if not named:
        return tuple(range(_MOST if count is None else count))
    if all(is_digits(word) for word in named):
        return tuple(int(word) for word in named)
    return _numbers_of(named) or tuple(range(len(named)))


def _numbers_of(uuids: Sequence[str]) -> tuple[int, ...] | None:
    """Returns the driver's numbers of GPUs given by UUIDs or their unique beginnings; None if one of them is
    unknown."""
    try:
        with nvml_library() as nvml:
            handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
            known = [text_of(nvml.nvmlDeviceGetUUID(handle)) or "" for handle in handles]
    except NoNvml:
        return None
    found = [[number for number, uuid in enumerate(known) if uuid.startswith(word)] for word in uuids]
    return tuple(numbers[0] for numbers in found) if all(len(numbers) == 1 for numbers in found) else None


def _place() -> str:
    """Returns the scope of GPU numbers. Slurm gives each job its own GPUs, and may number them from 0 in each."""
    job = os.environ.get("SLURM_JOB_ID")
    return socket.gethostname() + (f"-job-{job}" if job else "")


def used_mib(gpus: Sequence[int]) -> dict[int, float]:
    """Returns the used memory of these GPUs in MiB; empty without NVIDIA's library."""
    found: dict[int, float] = {}
    if not gpus:
        return found
    with suppress(NoNvml), nvml_library() as nvml:
        for gpu in gpus:
            with suppress(nvml.NVMLError):
                found[gpu] = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(gpu)).used / MIB
    return found


def wait_for_memory(
    baseline: dict[int, float],
    timeout_s: float,
    *,
    over: Callable[[], bool] = lambda: False,
    used: Callable[[Sequence[int]], dict[int, float]] = used_mib,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[int, float]:
    """Waits until every GPU uses no more memory than in ``baseline``, at most ``timeout_s`` seconds, or until ``over``.

    Returns the excess in MiB per GPU, empty once all is free. A driver frees the memory of a process some time after
    its end, and the next server would size its KV cache by the free memory."""
    end = time.monotonic() + timeout_s
    while True:
        now = used(tuple(baseline))
        left = {gpu: now[gpu] - before for gpu, before in baseline.items() if now.get(gpu, 0.0) > before + _SLACK_MIB}
        if not left or over() or time.monotonic() >= end:
            return left
        sleep(_POLL_S)


@contextlib.contextmanager
def writing_to(store: Store) -> Iterator[None]:
    """Explains a full disk, a link, a name or a missing right as a finding instead of a traceback."""
    try:
        yield
    except OSError as failure:
        why, hint = cannot_write(failure, store.folder)
        message = f"{store.folder} cannot be written: {why}; every result in it is complete"
        hint = f"{hint}; then the same command continues from here"
        raise MachineError(Finding("error", "STO004", message, ("sweep.folder",), hint)) from failure


def open_points(sweep: Sweep, store: Store, group: ServerGroup) -> list[Point]:
    """Returns the unmeasured points of a server."""
    return [point for point in group.points if state_of(sweep, store, point).state == OPEN]


def state_of(sweep: Sweep, store: Store, point: Point) -> State:
    """Returns the state of a point, or of its search."""
    search = search_of(sweep.settings, point)
    return search.state(store) if search else store.standing(point.point_id)


def run_group(
    sweep: Sweep, store: Store, claims: Claims, group: ServerGroup, policy: Policy, watcher: Watcher
) -> bool | None:
    """Measures the open points of one server. Returns False after a failure; None while another runner has it."""
    if not open_points(sweep, store, group):
        return True
    claim = claims.take(f"servers/{group.server_id}")
    if claim is None:
        return None
    try:
        # Again, because the earlier holder of the claim may have measured them.
        points = open_points(sweep, store, group)
        for point in points:
            store.tidy(point.point_id)
            aside = store.set_aside_damaged(point.point_id)
            if aside is not None:
                watcher.point(point, "open", aside.message)
        with _gpus_of(sweep, claims, group, policy) as gpus:
            if gpus is None or not points:
                return True
            plan = _plan_here(sweep, group, gpus)
            baseline = used_mib(gpus)
            work = Work(store, plan, points, policy, watcher, gpus, group.gpus or None)
            work.holds = lambda: claims.holds(claim)
            work.search = lambda point: search_of(sweep.settings, point)

            def settle() -> None:
                left = wait_for_memory(baseline, _MEMORY_S, over=lambda: policy.stop.asked)
                if left and not policy.stop.asked:
                    watcher.server(group.server_id, f"memory that was not released, in MiB by GPU: {left}")

            work.settle = settle
            work.plan_again = lambda: _plan_here(sweep, group, gpus)
            return take_points(work)
    except SglangHydraError as error:
        for point in open_points(sweep, store, group):
            store.add_failure(point.point_id, failure_record(point, "not_planned", error, retryable=False, final=True))
            watcher.point(point, "failed", error.findings[0].message)
        return False
    finally:
        with contextlib.suppress(OSError):  # the end of this process reports a full disk
            claims.release(claim)


def policy_of(sweep: Sweep, stop: Stop, stop_at: float | None = None) -> Policy:
    """Returns the policy in the sweep's settings."""
    return Policy(sweep.settings["retries"], sweep.settings["fail_fast"], stop_at, stop)


def _plan_here(sweep: Sweep, group: ServerGroup, gpus: tuple[int, ...]) -> Plan | Topology:
    """Plans a server, or several behind a router, for this machine: on a free port and its own GPUs, which keep its
    identity.

    Raises ConfigError if this gives another server than the planned one."""
    place = f"sweep on {socket.gethostname()}"
    if group.points and group.points[0].workload["url"]:
        return sweep.source.plan(group.requests)
    requests = [*group.requests, Request.typed("port", free_port(), place)]
    if gpus:
        requests.append(Request.typed("base_gpu_id", visible_gpus(None).index(gpus[0]), place))
    plan = sweep.source.plan(requests)
    if begin_to_start(plan.programs):
        plan = sweep.source.plan(requests)
    starts = plan_engine(plan.nodes.engine, embedded_first=True).name
    if starts != plan.engine.name:
        message = f"{plan.engine.name} is planned but not installed here: {starts} would be measured instead"
        hint = f"engine={starts} plans that; or engine.python=<an interpreter that has {plan.engine.name}>"
        raise ConfigError(Finding("error", "RNR001", message, ("engine",), hint))
    topology = sweep.source.topology(requests, is_free) if has_several_servers(plan.nodes) else None
    id = plan.server_id if topology is None else topology.topology_id
    if id != group.server_id:
        message = f"planned here, server {group.server_id} becomes {id}"
        hint = "do this machine's SGLANG_* variables, packages or presets differ from where the sweep was planned?"
        if not plan.is_exact:
            hint = f"its values are an estimate here: {plan.resolution.not_asked}"
        raise ConfigError(Finding("error", "RNR001", message, ("sweep",), hint))
    return topology or plan


@contextlib.contextmanager
def _gpus_of(sweep: Sweep, claims: Claims, group: ServerGroup, policy: Policy) -> Iterator[tuple[int, ...] | None]:
    """Takes a set of GPUs for this server, and waits while others have them; yields None if the time ends before."""
    if not group.gpus or group.points[0].workload["url"]:
        yield ()
        return
    sets = GpuSets(claims, visible_gpus(sweep.source.plan(group.requests).gpu.count or group.gpus))
    each = group.gpus_of_node
    if each > len(sets):
        message = f"the server takes {each} GPUs, and {len(sets)} can be seen here"
        raise MachineError(Finding("error", "RNR004", message, ("tp_size", "gpu.count"), f"tp_size={len(sets) or 1}"))
    found = sets.take(each)
    while found is None and not policy.over:
        time.sleep(CLAIM_S)
        found = sets.take(each)
    try:
        yield found[0] if found else None
    finally:
        if found:
            with contextlib.suppress(OSError):
                sets.give_back(found[1])
