"""``serve``: from a plan to a running server, and nothing started before everything has been looked at."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_hydra.app import make_plan
from sglang_hydra.compose import Composer
from sglang_hydra.engines.base import Machine
from sglang_hydra.engines.choose import choose
from sglang_hydra.engines.machine import read_machine
from sglang_hydra.engines.planned import plan_engine
from sglang_hydra.errors import ConfigError, MachineError
from sglang_hydra.explain import finding_lines, plan_screen
from sglang_hydra.facts.weights import weights_bytes
from sglang_hydra.findings import Finding
from sglang_hydra.launch.display import say
from sglang_hydra.launch.example import curl_line
from sglang_hydra.launch.hydra_run import ask_hydra, in_hydra, run_folder, write_whole
from sglang_hydra.launch.local import Launch, LocalServer, Outcome
from sglang_hydra.launch.local import serve as run_server
from sglang_hydra.launch.preflight import preflight
from sglang_hydra.launch.server_info import ACTUAL, after_start
from sglang_hydra.overrides import Request
from sglang_hydra.places import shown_path
from sglang_hydra.plans import Plan
from sglang_hydra.screen import Line, text, write
from sglang_hydra.tiny import ensure_tiny, tiny_path
from sglang_hydra.topology.settings import has_several_servers
from sglang_hydra.words import plural, program

if TYPE_CHECKING:
    from sglang_hydra.cli import Invocation
    from sglang_hydra.diagnose import Diagnosis

Explain = Callable[[Sequence[Finding], "Diagnosis | None"], Sequence[Finding]]

_LONGEST_S = 7 * 24 * 3600


def serve_plan(composer: Composer, invocation: Invocation) -> int:
    """Plans, shows, checks the machine, and runs the server until it ends. Returns the exit code."""
    if invocation.hydra:
        return ask_hydra(composer, invocation)
    _settle_typed_port(invocation)
    plan = make_plan(composer, invocation.requests)
    _check_settings(plan)
    if has_several_servers(plan.nodes):
        # Several servers: each has a plan of its own, so this one is not judged here.
        from sglang_hydra.topology.serve import serve_topology

        return int(serve_topology(composer, invocation, plan))
    if not may_start(plan):
        write([*plan_screen(plan), *_first_words(invocation)])
        if _only_lacks_accelerator(plan):
            # Refused for want of a GPU where none was asked for: what is missing is an engine that needs none.
            choose(plan.nodes["engine"]["name"], plan.engine.python, read_machine(), None)
        return 2
    if plan.nodes["launch"]["name"] == "slurm":
        # Other machines: this one is not looked at.
        from sglang_hydra.launch.slurm import serve_slurm

        return int(serve_slurm(composer, invocation, plan))
    return _serve_here(composer, invocation, plan)


def launch_of(plan: Plan, machine: Machine, log_file: Path | None = None) -> Launch:
    """What is started for a plan: the intent, the key apart from it, and how readiness is told."""
    planned = plan_engine(plan.nodes["engine"], embedded_first=True)
    request = planned.request(plan.resolution, plan.environment, machine, plan.nodes["extra"])
    settings = plan.nodes["launch"]
    command = planned.engine.command(_with_secret(request, plan))
    return Launch(
        command=command,
        host=request.host,
        port=request.port,
        health_path=planned.engine.health_path,
        health_timeout_s=planned.engine.health_timeout_s,
        ready_timeout_s=settings["ready_timeout"],
        stop_timeout_s=settings["stop_timeout"],
        milestones=planned.engine.milestones,
        log_file=log_file,
    )


def _first_words(invocation: Invocation) -> list[Line]:
    """Where to begin, for who typed nothing."""
    if invocation.requests:
        return []
    return [[text(f"{program()} --help shows what there is, --help WORD finds it", "dim")]]


def may_start(plan: Plan) -> bool:
    """Whether nothing of the plan speaks against starting it, or only we do and ``launch.force`` overrides us."""
    return plan.launchable or (plan.ok and bool(plan.nodes["launch"]["force"]))


def ready_lines(plan: Plan, launch: Launch, seconds: float, folder: Path) -> list[Line]:
    """What is said once the server of a plan is up: how it compares with the plan, and how to use it."""
    lines: list[Line] = [
        [],
        *after_start(plan, launch.host, launch.port, folder),
        [text(f"Ready after {seconds:.1f} s at {launch.url}", "bold green")],
    ]
    if plan.values["node_rank"]:
        return [*lines, [text("  this node holds a part of the model; the first node answers", "dim")], []]
    lines.append([text(f"  {curl_line(plan, launch.url)}")])
    if plan.nodes["model"]["name"] == "tiny":
        lines.append([text("  tiny has random weights: its text is random on purpose", "dim")])
    return lines


def _serve_here(composer: Composer, invocation: Invocation, plan: Plan) -> int:
    """On this machine: everything is looked at, all that is wrong is shown at once, then the server runs."""
    found = preflight(plan)
    findings = list(found.findings)
    try:
        plan = _settle_engine(composer, invocation.requests, plan, found.machine)
        plan = _with_port(composer, invocation, plan)
        plan = _with_head(composer, invocation, plan)
    except MachineError as failure:
        findings += [finding for finding in failure.findings if finding not in findings]
    write([*plan_screen(plan), *finding_lines(findings, plan)])
    if not may_start(plan):
        return 2
    wrong = [finding for finding in findings if finding.level == "error"]
    if wrong and not plan.nodes["launch"]["force"]:
        said = f"Not started: {plural(len(wrong), 'error')} of this machine; launch.force=true starts it all the same"
        write([[text(said, "bold red")]])
        return MachineError.exit_code
    run = _run_detached if plan.nodes["launch"]["detach"] else _run

    def explain(findings: Sequence[Finding], diagnosis: Diagnosis | None) -> Sequence[Finding]:
        from sglang_hydra.launch.failure import with_smallest_change

        return with_smallest_change(findings, diagnosis, plan, composer, invocation.requests)

    node = f"-node{plan.values['node_rank']}" if plan.values["nnodes"] > 1 else ""
    mark = f"{plan.values['port']}{node}"
    return in_hydra(composer, invocation, lambda: run(plan, found.machine, explain), mark)


def _check_settings(plan: Plan) -> None:
    """Raises ConfigError for times that cannot be waited."""
    for key in ("ready_timeout", "stop_timeout"):
        seconds = plan.nodes["launch"][key]
        if not 0 < seconds < _LONGEST_S:
            message = f"launch.{key}={seconds} is no time in seconds to wait"
            raise ConfigError(Finding("error", "CLI024", message, (f"launch.{key}",), f"launch.{key}=600"))


def _only_lacks_accelerator(plan: Plan) -> bool:
    return plan.gpu.device is None and [finding.fields for finding in plan.errors] == [("device",)]


def _with_secret(request: Any, plan: Plan) -> Any:
    from dataclasses import replace

    return replace(request, intent={**request.intent, **plan.secrets}) if plan.secrets else request


def _settle_engine(composer: Composer, requests: Sequence[Request], plan: Plan, machine: Machine) -> Plan:
    """Decides what ``engine=auto`` is here; plans again if that is another engine than the plan was made for.

    The checkpoint of ``model=tiny`` is made first, so that its size is known. Raises MachineError where nothing here
    can serve the plan.
    """
    if plan.values["model_path"] == str(tiny_path()):
        ensure_tiny()
    node = plan.nodes["engine"]
    choice = choose(node["name"], node["python"], machine, weights_bytes(str(plan.values["model_path"])))
    if choice.engine.name == plan.engine.name:
        return plan
    settled = Request(f"engine={choice.engine.name}", f"engine=auto: {choice.reason}", "engine")
    rest = [request for request in requests if request.text.partition("=")[0] != "engine"]
    return make_plan(composer, [*rest, settled])


def _settle_typed_port(invocation: Invocation) -> None:
    """For ``port=0`` on the command line: a port that is free now in its place, so that everybody knows it."""
    if any(request.text.startswith("launch=") and request.text != "launch=local" for request in invocation.requests):
        return  # free here may say nothing of where it will be: a job of Slurm's takes one there
    typed = [place for place, request in enumerate(invocation.requests) if request.text.partition("=")[0] == "port"]
    if typed and invocation.requests[typed[-1]].text == "port=0":
        place = f"{invocation.requests[typed[-1]].place}: port=0 takes one that was free"
        invocation.requests[typed[-1]] = Request.typed("port", _free_port(), place)


def _with_port(composer: Composer, invocation: Invocation, plan: Plan) -> Plan:
    """The same for a ``port: 0`` from a file or from SGLang's own flags, which is known only now."""
    if plan.values["port"] != 0:
        return plan
    invocation.requests.append(Request.typed("port", _free_port(), "port=0: one that was free"))
    engine = Request(f"engine={plan.engine.name}", "engine=auto", "engine")
    rest = [request for request in invocation.requests if request.text.partition("=")[0] != "engine"]
    return make_plan(composer, [*rest, engine], seed=int(plan.values["random_seed"]))


def _with_head(composer: Composer, invocation: Invocation, plan: Plan) -> Plan:
    if plan.values["nnodes"] <= 1:
        return plan
    from sglang_hydra.launch.nodes import with_head

    return with_head(composer, invocation, plan)


def _free_port() -> int:
    from sglang_hydra.launch.nodes import free_port_block

    # Below those that the system gives to outgoing connections: the server listens only after a while.
    return free_port_block(1)


def _run(plan: Plan, machine: Machine, explain: Explain) -> int:
    """Inside Hydra's run folder: leaves the plan there, starts the server, waits for its end."""
    folder = _leave_plan(plan)

    def ready(server: LocalServer, seconds: float) -> None:
        lines = ready_lines(plan, server.launch, seconds, folder)
        say([*lines, [text("  Ctrl-C stops it", "dim")], []])

    outcome: Outcome = run_server(launch_of(plan, machine, folder / "server.log"), on_ready=ready)
    say(finding_lines(explain(outcome.findings, outcome.diagnosis)), sys.stderr)
    return outcome.exit_code


def _run_detached(plan: Plan, machine: Machine, explain: Explain) -> int:
    """The same, but the server stays when this command has returned."""
    from sglang_hydra.launch.detach import start_detached
    from sglang_hydra.launch.failure import diagnosis_of

    folder = _leave_plan(plan)
    launch = launch_of(plan, machine, folder / "server.log")

    def ready(seconds: float) -> list[Line]:
        return ready_lines(plan, launch, seconds, folder)

    def explained(findings: Sequence[Finding], code: int | None) -> Sequence[Finding]:
        return explain(findings, None if code is None else diagnosis_of(folder / "server.log", code))

    return start_detached(plan, launch, folder, ready, explained, wait=bool(plan.nodes["launch"]["wait"]))


def _leave_plan(plan: Plan) -> Path:
    folder = run_folder()
    # What an earlier server of the same folder held says nothing of this one.
    (folder / ACTUAL).unlink(missing_ok=True)
    write_whole(folder / "plan.json", json.dumps(plan.to_json(), indent=2) + "\n")
    say([[text(f"Run folder {shown_path(str(folder))}: plan.json, server.log", "dim")]])
    return folder
