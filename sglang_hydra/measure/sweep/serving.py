"""Runs one server of a sweep with its points: starts it once, measures point by point, stops it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.arguments.secrets import API_KEY_VARIABLE
from sglang_hydra.facts.tiny import make_if_tiny
from sglang_hydra.measure.bench.client import Builtin
from sglang_hydra.measure.bench.load import Load, load_of
from sglang_hydra.measure.bench.point import INVALID, run_point
from sglang_hydra.measure.bench.server import Endpoint
from sglang_hydra.measure.sweep.files import write_below
from sglang_hydra.measure.sweep.job import Failed, Work
from sglang_hydra.measure.sweep.outside import still_the_same
from sglang_hydra.measure.sweep.points import Point
from sglang_hydra.measure.sweep.progress import numbers
from sglang_hydra.measure.sweep.store import DONE, failure_record, point_record
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.router import absent
from sglang_hydra.run.diagnose.classes import classes_by_kind
from sglang_hydra.run.launch.as_planned import KIND as NOT_AS_PLANNED
from sglang_hydra.run.launch.as_planned import must_be_planned, record_of
from sglang_hydra.run.launch.display import Display
from sglang_hydra.run.launch.failure import HOST_MEMORY
from sglang_hydra.run.launch.listening import OURS
from sglang_hydra.run.launch.local import LocalServer
from sglang_hydra.run.launch.log import LogTail
from sglang_hydra.run.launch.preflight import Preflight, preflight
from sglang_hydra.run.launch.serve import launch_of
from sglang_hydra.run.launch.server_info import compared_with_plan
from sglang_hydra.run.launch.signals import describe_exit
from sglang_hydra.run.launch.slurm.inside import BESIDE_OTHERS, prepared
from sglang_hydra.run.launch.slurm.record import Account, Record, leave_secrets, secrets_of
from sglang_hydra.run.launch.slurm.serve import server_spec
from sglang_hydra.run.topology.serve import folder_of, members_of, router_launch
from sglang_hydra.run.topology.server_group import ServerGroup
from sglang_hydra.run.topology.slurm import parts_in_job, topology_spec
from sglang_hydra.text.errors import CarriedError, MachineError, ServerError, SglangHydraError

_LOG_LINES = 40
_DEATH_S = 2.0
_SIGKILLED = (-9, 137)

# Failures of others than the server, in addition to the classes of ``diagnose``.
NOT_HERE, CLIENT, NOT_IDLE = "not_here", "client", "not_idle"
# A client process ended by a signal: the same may succeed next time.
_KILLED = re.compile(r"\(exit -\d+\)")


def take_points(work: Work) -> bool:
    """Measures every point once, with as few server starts as possible. Returns whether none failed.

    A server that does not start fails every point. One that dies fails the current point, and a new one measures the
    others. Retries failures that may pass. ``work.points`` keeps the points without remaining time."""
    while work.goes_on:
        try:
            with _outside(work) if work.common.nodes.bench.url else _server_of(work) as running:
                failed = _take_in_turn(work, running)
        except _NotUpError as error:
            failed = error.failed
        if failed is not None and not work.given_up:
            _note_failure(work, failed)
        if work.goes_on and work.plan_again is not None:
            work.plan = work.plan_again()
    return not work.failed


class _Running(NamedTuple):
    local: LocalServer | None
    """None for a foreign server, which we neither start nor stop."""
    server: Endpoint
    actual: dict[str, object]
    """The check of the server before its first point: the owner of its port, and its comparison with the plan."""


class _NotUpError(CarriedError):
    """The server did not start; ``failed`` is None if it was only asked to stop."""

    def __init__(self, failed: Failed | None) -> None:
        super().__init__()
        self.failed = failed


@contextlib.contextmanager
def _server_of(work: Work) -> Iterator[_Running]:
    """Yields the ready server of the plan, and ends it after the block. Raises _NotUpError."""
    display = _ServerDisplay(work)
    local = work.policy.stop.server = _started_by_us(work, display)
    try:
        display.note("starting")
        if work.policy.stop.asked:
            raise _NotUpError(None)
        try:
            local.start()
            if (seconds := local.wait_ready()) is None:
                raise _NotUpError(None)
        except SglangHydraError as error:
            raise _NotUpError(_failed(local, error, fatal=True)) from None
        display.note(f"ready after {seconds:.1f} s")
        server = _bench_server(work, local.launch.url, lambda: local.pid is not None)
        yield _Running(local, server, _seen_of(work, local))
    finally:
        work.policy.stop.server = None
        local.stop()
        display.note("stopped")
        if not work.policy.stop.asked:
            work.settle()


def _started_by_us(work: Work, display: Display) -> LocalServer:
    """Returns the unstarted server, or several behind their router; across nodes as steps of this job. Raises
    _NotUpError if this machine cannot run it."""
    plan, common, folder = work.plan, work.common, work.folder
    nodes = int(plan.values["nnodes"]) if isinstance(plan, Plan) else plan.nodes
    plans = [plan] if isinstance(plan, Plan) else [server.plan for server in plan.servers]
    looks = [preflight(each) for each in plans] if nodes == 1 else []
    wrong = [finding for look in looks for finding in look.findings if finding.level == "error"]
    missing = None if isinstance(plan, Plan) else absent(plan.router)
    wrong += [missing] if missing is not None else []
    if wrong:
        # A port that was taken since it was chosen: the next one is free.
        again = all(finding.about == "port_taken" for finding in wrong)
        raise _NotUpError(Failed(NOT_HERE, MachineError(*wrong), retryable=again, fatal=True))
    # The report reads the common plan under the id of the whole topology.
    write_below(folder / "plan.json", json.dumps({**common.to_json(), "server_id": work.server_id}, indent=1) + "\n")
    if not isinstance(plan, Plan):
        for server in plan.servers:
            folder_of(folder, server).mkdir(parents=True, exist_ok=True)
    try:
        make_if_tiny(common.values["model_path"])
        return _server(work, nodes, looks, display)
    except MachineError as error:
        raise _NotUpError(Failed(NOT_HERE, error, retryable=False, fatal=True)) from None


def _server(work: Work, nodes: int, looks: Sequence[Preflight], display: Display) -> LocalServer:
    plan, common, folder = work.plan, work.common, work.folder
    job, secrets = Account(os.environ.get("SLURM_JOB_ID", "")), None
    if nodes > 1:
        secrets = leave_secrets(folder, secrets_of(common.secrets.get("api_key"), common.environment, os.environ))
    if isinstance(plan, Plan):
        if nodes == 1:
            return LocalServer(launch_of(plan, looks[0].machine, folder / "server.log"), display)
        spec = server_spec(plan, folder, secrets)
        return LocalServer(prepared(replace(spec, srun=[*BESIDE_OTHERS, *spec.srun]), Record(folder, job)), display)
    if nodes == 1:
        return ServerGroup(members_of(plan, looks, folder), router_launch(plan, folder / "router.log"), display)
    return ServerGroup(*parts_in_job(topology_spec(plan, folder, secrets), Record(folder, job)), display)


@contextlib.contextmanager
def _outside(work: Work) -> Iterator[_Running]:
    """Yields the running server of ``bench.url``. Raises _NotUpError if it has changed or is gone."""
    plan = work.common
    try:
        still_the_same(plan)
    except ServerError as error:
        raise _NotUpError(Failed(NOT_AS_PLANNED, error, retryable=False, fatal=True)) from None
    except MachineError as error:
        raise _NotUpError(Failed(NOT_HERE, error, retryable=True, fatal=True)) from None
    write_below(work.folder / "plan.json", json.dumps(plan.to_json(), indent=1) + "\n")
    server = _bench_server(work, str(plan.nodes.bench.url).rstrip("/"), lambda: True)
    server = replace(server, flushes=False, log=None, api_key=os.environ.get(API_KEY_VARIABLE))
    yield _Running(None, server, {"owner": "outside"})


def _seen_of(work: Work, local: LocalServer) -> dict[str, object]:
    """Compares the server with the plan. Raises _NotUpError for a server that is not the planned one. That is retryable
    if another process may have answered, and final if the server itself differs."""
    if isinstance(work.plan, Plan) or not isinstance(local, ServerGroup):
        return _record_of(work.common, local, work.folder)
    records = {
        server.name: _record_of(server.plan, local.servers[server.name], folder_of(work.folder, server))
        for server in work.plan.servers
    }
    return {**next(iter(records.values())), "servers": records}


def _record_of(plan: Plan, local: LocalServer, folder: Path) -> dict[str, object]:
    launch = local.launch
    compared = compared_with_plan(plan, launch.host, launch.port, folder)
    try:
        must_be_planned(plan, compared, local.owner, local)
    except ServerError as error:
        seen = local.owner is not None and local.owner.whose == OURS
        raise _NotUpError(Failed(NOT_AS_PLANNED, error, retryable=not seen, fatal=True)) from None
    return record_of(plan, compared, local.owner)


def _failed(local: LocalServer, error: SglangHydraError, *, fatal: bool) -> Failed:
    """Returns the failure with its class. An unexplained failure may pass another time, and so may a SIGKILL: the
    kernel sends it when memory runs out, an operator or a scheduler at any time."""
    kind = local.failure.kind if local.failure else NOT_HERE
    known = classes_by_kind().get(kind)
    killed = kind == HOST_MEMORY and local.failure is not None and local.failure.exit_code in _SIGKILLED
    return Failed(kind, error, killed or (known.retryable if known else kind != NOT_HERE), fatal)


def _bench_server(work: Work, url: str, alive: Callable[[], bool]) -> Endpoint:
    plan = work.common
    config = plan.model.config or {}
    vocabulary = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size") or _SMALLEST_VOCABULARY
    return Endpoint(
        url=url,
        model=str(plan.values["served_model_name"] or plan.values["model_path"]),
        engine=plan.engine.name,
        model_path=str(plan.values["tokenizer_path"] or plan.values["model_path"]),
        vocab_size=int(vocabulary),
        flushes=plan.engine.name == "sglang",
        python=plan.engine.python,
        gpus=work.gpus,
        gpu_ids=work.gpu_ids,
        log=work.folder / "server.log",
        api_key=plan.secrets.get("api_key"),
        alive=alive,
    )


# Every tokenizer in use has more: ids below it are safe if the model's vocabulary size is unknown.
_SMALLEST_VOCABULARY = 2048


def _take_in_turn(work: Work, running: _Running) -> Failed | None:
    """Measures points until none is left or the time is over. Returns the failure of the first point if it ends this
    server. A client that fails on a healthy server fails only its point."""
    client = Builtin(running.server)
    try:
        while work.goes_on:
            if not _next_is_a_measurement(work):
                continue
            point = work.points[0]
            try:
                failed = _take(work, running, client, load_of(point.workload), point)
            except SglangHydraError as error:
                idle = error.exit_code != ServerError.exit_code
                again = not idle or any(_KILLED.search(finding.message) for finding in error.findings)
                failed = Failed(CLIENT if idle else NOT_IDLE, error, again)
            if failed is None:
                work.points.pop(0)
            elif work.given_up or failed.kind not in (CLIENT, NOT_IDLE):
                return failed
            else:
                dead = _died(running)
                if dead is not None or failed.kind == NOT_IDLE:
                    return dead or failed
                _note_failure(work, failed)
                client.close()  # one whose process was killed would fail every time
    finally:
        client.close()
    return None


def _next_is_a_measurement(work: Work) -> bool:
    """Prepares the first point. Replaces a search by its next step, or removes it at its end; also removes a point that
    has a result by now (as a step of another search). Returns whether the first point is to be measured."""
    point = work.points[0]
    search = work.search(point)
    if search is None and work.store.standing(point.point_id).state != DONE:
        return True
    step = search.next_step(work.store) if search is not None else None
    if step is not None:
        work.points.insert(0, step)
        return True
    work.points.pop(0)
    if search is not None:
        work.watcher.point(point, *search.finish(work.store))
    return False


def _take(work: Work, running: _Running, client: Builtin, load: Load, point: Point) -> Failed | None:
    work.watcher.point(point, "running", "")
    result = run_point(running.server, client, load, point_id=point.point_id, repeat=point.repeat)
    if work.given_up:
        return Failed(CLIENT, MachineError(), retryable=True)
    # A router redirects requests of a failed server: the point may look valid without it.
    is_partial = isinstance(running.local, ServerGroup) and running.local.pid is None
    if is_partial or (result.state == INVALID and result.measures["failed"]):
        dead = _died(running)
        if dead is not None:
            return dead
    if running.local and not running.local.look_at_port() and running.local.pid is not None:
        error = running.local.port_lost("the point does not count")
        return _failed(running.local, error, fatal=False)
    record = {**point_record(point), **result.to_json(), "actual": running.actual}
    details = "".join(json.dumps(detail) + "\n" for detail in result.details)
    work.store.add_result(point.point_id, record, details)
    work.watcher.point(point, result.state, "; ".join(result.reasons) or numbers(record))
    return None


def _died(running: _Running) -> Failed | None:
    """Returns why the server is gone, None if it is not. A process takes a moment to end."""
    if running.local is None:
        return None
    end = time.monotonic() + _DEATH_S
    while running.local.pid is not None and running.local.health() is None and time.monotonic() < end:
        time.sleep(0.05)
    if running.local.pid is not None:
        return None
    code = running.local.wait()
    if running.local.lost_port:
        return _failed(running.local, running.local.port_lost("the point does not count"), fatal=False)
    how = describe_exit(code)
    error = running.local.failed("ENG010", f"the server ended while it was measured: {how}", code)
    return _failed(running.local, error, fatal=False)


def _note_failure(work: Work, failed: Failed) -> None:
    """Records the failure for every point concerned, and drops the points without another attempt."""
    concerned = list(work.points) if failed.fatal else work.points[:1]
    log_tail = LogTail(work.folder / "server.log").last(_LOG_LINES)
    for point in concerned:
        tried = work.attempts[point.point_id] = work.attempts.get(point.point_id, 0) + 1
        final = not failed.retryable or tried > work.policy.retries
        work.failed = work.failed or final
        state = {"retryable": failed.retryable, "final": final}
        record = failure_record(point, failed.kind, failed.error, **state, log_tail=log_tail)
        work.store.add_failure(point.point_id, record)
        again = "" if final else " (it is tried again)"
        work.watcher.point(point, "failed", f"{failed.kind}: {failed.error.findings[0].message}{again}")
        if final:
            work.points.remove(point)


class _ServerDisplay(Display):
    """A server's display inside a sweep: lines go only to the log, notes and milestones to the watcher."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def note(self, text: str) -> None:
        self._work.watcher.server(self._work.server_id, text.strip())
