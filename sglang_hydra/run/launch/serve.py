"""Implements ``serve``: turns a plan into a running server, and starts nothing before every check."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_hydra.compose.overrides import Request
from sglang_hydra.facts.tiny import make_if_tiny
from sglang_hydra.facts.weights import weights_bytes
from sglang_hydra.planning.engines.base import Machine
from sglang_hydra.planning.engines.planned import choose, plan_engine
from sglang_hydra.planning.plan import Plan, may_start
from sglang_hydra.run.launch.display import write_lines
from sglang_hydra.run.launch.failure import diagnosis_of, with_smallest_change
from sglang_hydra.run.launch.head import free_port, with_head
from sglang_hydra.run.launch.hydra_run import in_hydra, run_folder, write_in_run_folder
from sglang_hydra.run.launch.launch_request import LaunchRequest
from sglang_hydra.run.launch.listening import Owner
from sglang_hydra.run.launch.local import Launch, LocalServer, Outcome
from sglang_hydra.run.launch.local import serve as run_server
from sglang_hydra.run.launch.preflight import preflight
from sglang_hydra.run.launch.server_info import ACTUAL, after_start, curl_line
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.plan import plan_screen
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.exit_codes import INTERRUPTED
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import shown_path
from sglang_hydra.text.screen import Line, text, write
from sglang_hydra.text.words import plural

if TYPE_CHECKING:
    from sglang_hydra.run.diagnose.diagnosis import Diagnosis

Explain = Callable[[Sequence[Finding], "Diagnosis | None"], Sequence[Finding]]


def launch_of(plan: Plan, machine: Machine, log_file: Path | None = None) -> Launch:
    """Returns the launch of a plan: its command, the API key apart from it, and the readiness check."""
    planned = plan_engine(plan.nodes.engine, embedded_first=True)
    request = planned.request(plan.resolution, plan.environment, machine)
    settings = plan.nodes.launch
    command = planned.engine.command(replace(request, intent={**request.intent, **plan.secrets}))
    return Launch(
        command=command,
        host=request.host,
        port=request.port,
        health_path=planned.engine.health_path,
        health_timeout_s=planned.engine.health_timeout_s,
        ready_timeout_s=settings.ready_timeout,
        stop_timeout_s=settings.stop_timeout,
        milestones=planned.engine.milestones,
        log_file=log_file,
    )


def ready_lines(
    plan: Plan,
    launch: Launch,
    seconds: float,
    folder: Path,
    server: LocalServer | None = None,
    owner: Owner | None = None,
) -> list[Line]:
    """Returns the lines for a ready server: its comparison with the plan, and how to use it. Raises ServerError for a
    server that is not the planned one."""
    lines: list[Line] = [
        [],
        *after_start(plan, launch.host, launch.port, folder, owner=owner, server=server),
        [text(f"Ready after {seconds:.1f} s at {launch.url}", "bold green")],
    ]
    if plan.values["node_rank"]:
        return [*lines, [text("  this node holds a part of the model; the first node answers", "dim")], []]
    lines.append([text(f"  {curl_line(plan, launch.url)}")])
    if plan.nodes.model.name == "tiny":
        lines.append([text("  tiny has random weights: its text is random on purpose", "dim")])
    return lines


def serve_here(asked: LaunchRequest, plan: Plan) -> int:
    """Serves on this machine: checks everything, shows all problems at once, then runs the server."""
    found = preflight(plan)
    findings = list(found.findings)
    try:
        plan = _settle_engine(asked, plan, found.machine)
        plan = _with_port(asked, plan)
        plan = with_head(asked, plan)
    except MachineError as failure:
        findings += [finding for finding in failure.findings if finding not in findings]
    wrong = [finding for finding in findings if finding.level == "error"]
    is_stopped = bool(wrong) and not plan.nodes.launch.force
    if is_stopped:  # the verdict is on this machine
        write(plan_screen(replace(plan, findings=(*plan.findings, *findings)), everything=asked.everything))
    else:
        write([*plan_screen(plan, everything=asked.everything), *finding_lines(findings, plan)])
    if not may_start(plan):
        return 2
    if is_stopped:
        errors = plural(len(wrong), "error")
        message = f"Not started: {errors} of this machine; launch.force=true starts it all the same"
        write([[text(message, "bold red")]])
        return MachineError.exit_code
    run = _run_detached if plan.nodes.launch.detach else _run

    def explain(findings: Sequence[Finding], diagnosis: Diagnosis | None) -> Sequence[Finding]:
        return with_smallest_change(findings, diagnosis, plan, asked.composer, asked.requests)

    node = f"-node{plan.values['node_rank']}" if plan.values["nnodes"] > 1 else ""
    return in_hydra(asked, lambda: run(plan, found.machine, explain), f"{plan.values['port']}{node}")


def _settle_engine(asked: LaunchRequest, plan: Plan, machine: Machine) -> Plan:
    """Resolves ``engine=auto`` on this machine; plans again if the plan assumed another engine.

    Makes the checkpoint of ``model=tiny`` first, so that its size is known. Raises MachineError if no engine here can
    serve the plan."""
    make_if_tiny(plan.values["model_path"])
    node = plan.nodes.engine
    choice = choose(node.name, node.python, machine, weights_bytes(str(plan.values["model_path"])))
    if choice.engine.name == plan.engine.name:
        return plan
    return asked.planned_again(plan, choice.engine.name, f"engine=auto: {choice.reason}")


def _with_port(asked: LaunchRequest, plan: Plan) -> Plan:
    """Replaces ``port=0`` by a free port and plans again; returns other plans unchanged."""
    if plan.values["port"] != 0:
        return plan
    asked.requests.append(Request.typed("port", free_port(), "port=0: one that was free"))
    return asked.planned_again(plan)


def _run(plan: Plan, machine: Machine, explain: Explain) -> int:
    """Writes the plan to Hydra's run folder, starts the server and waits for its end."""
    folder = _leave_plan(plan)

    def ready(server: LocalServer, seconds: float) -> None:
        lines = ready_lines(plan, server.launch, seconds, folder, server, server.owner)
        write_lines([*lines, [text("  Ctrl-C stops it", "dim")], []])

    outcome: Outcome = run_server(launch_of(plan, machine, folder / "server.log"), on_ready=ready)
    write_lines(finding_lines(explain(outcome.findings, outcome.diagnosis)), sys.stderr)
    write_lines(stopped_lines(outcome.exit_code, "the server"))
    return outcome.exit_code


def stopped_lines(exit_code: int, what: str) -> list[Line]:
    """Returns the last line after Ctrl-C; nothing after another end."""
    return [[text(f"Stopped: {what}, with all of its processes")]] if exit_code == INTERRUPTED else []


def _run_detached(plan: Plan, machine: Machine, explain: Explain) -> int:
    """Starts the server and returns; the server continues."""
    from sglang_hydra.run.launch.detach import start_detached

    folder = _leave_plan(plan)
    launch = launch_of(plan, machine, folder / "server.log")

    def ready(seconds: float) -> list[Line]:
        return ready_lines(plan, launch, seconds, folder)

    def explained(findings: Sequence[Finding], code: int | None) -> Sequence[Finding]:
        return explain(findings, None if code is None else diagnosis_of(folder / "server.log", code))

    return start_detached(plan, launch, folder, ready, explained, wait=bool(plan.nodes.launch.wait))


def _leave_plan(plan: Plan) -> Path:
    folder = run_folder()
    # A comparison of an earlier server in this folder does not apply to this one.
    (folder / ACTUAL).unlink(missing_ok=True)
    write_in_run_folder(folder / "plan.json", json.dumps(plan.to_json(), indent=2) + "\n")
    write_lines([[text(f"Run folder {shown_path(str(folder))}: plan.json, server.log", "dim")]])
    return folder
