"""``serve``: plans, shows the plan, and starts a server unless something is wrong."""

from __future__ import annotations

from sglang_hydra.cli.corrected import corrected_lines
from sglang_hydra.cli.hydra_words import asks_for_sweep
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.facts.trust import begin_to_start
from sglang_hydra.planning.engines.base import read_machine
from sglang_hydra.planning.engines.planned import choose
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.making.paths import findings_on
from sglang_hydra.planning.plan import Plan, may_start
from sglang_hydra.rules.resolution import drawn_seed
from sglang_hydra.run.launch.display import write_lines
from sglang_hydra.run.launch.head import free_port
from sglang_hydra.run.launch.hydra_run import ask_hydra
from sglang_hydra.run.launch.launch_request import LaunchRequest
from sglang_hydra.run.launch.serve import serve_here
from sglang_hydra.show.plan import plan_screen
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.screen import text, write
from sglang_hydra.text.words import program

_LONGEST_S = 7 * 24 * 3600


def run(invocation: Invocation) -> int:
    """Plans, shows the plan, checks the machine, and runs the server until it ends; with ``-m`` measures every point,
    as ``bench -m``. Returns the exit code."""
    composer = composer_of(invocation)
    if invocation.hydra:
        return ask_hydra(_asked(composer, invocation))
    if invocation.has("multirun") or (not invocation.once and asks_for_sweep(composer, invocation)):
        from sglang_hydra.cli import bench

        invocation.given["multirun"] = True
        return bench.run(invocation)
    _settle_typed_port(invocation)
    plan = make_plan(composer, invocation.requests, seed=drawn_seed())
    _check_settings(plan)
    typed = [item.text for item in invocation.requests if item.layer == "cli" and item.text[:13] == "launch.slurm."]
    if typed and plan.nodes.launch.name == "local":
        message = f"{typed[0]} is for launch=slurm, and this starts here"
        raise ConfigError.of("CLI019", message, typed=(typed[0],), fix=f"launch=slurm {typed[0]}")
    if may_start(plan) or has_several_servers(plan.nodes):
        plan = _with_named_programs(composer, invocation, plan)
    if has_several_servers(plan.nodes):
        # Each of several servers has its own plan, so this plan is not judged here.
        from sglang_hydra.run.topology.serve import serve_topology
        from sglang_hydra.run.topology.slurm import serve_in_slurm

        return serve_topology(_asked(composer, invocation), plan, serve_in_slurm)
    if plan.nodes.sweep.dry_run:  # a sweep's key: nothing is to be started
        write(plan_screen(plan, everything=invocation.has("all")))
        return 0 if may_start(plan) else 2
    if not may_start(plan):
        corrected = corrected_lines(invocation, plan.findings, composer)
        where = [[text(f"{program()} --help shows everything, --help WORD searches it", "dim")]]
        lines = plan_screen(plan, everything=invocation.has("all"), corrected=corrected)
        write([*lines, *([] if invocation.requests else where)])
        if plan.gpu.device is None and [finding.fields for finding in plan.errors] == [("device",)]:
            # No GPU here, and none was chosen: what is missing is an engine that needs none.
            if not any(one.kind == "shell" for finding in plan.errors for one in finding.remedies):
                choose(plan.nodes.engine.name, plan.engine.python, read_machine(), None)
            return MachineError.exit_code
        return 2
    if plan.nodes.launch.name == "slurm":
        # The server runs on other machines: this one is not checked.
        from sglang_hydra.run.launch.slurm.serve import serve_slurm

        return serve_slurm(_asked(composer, invocation), plan)
    return serve_here(_asked(composer, invocation), plan)


def _asked(composer: Composer, invocation: Invocation) -> LaunchRequest:
    return LaunchRequest(
        composer,
        invocation.requests,
        everything=invocation.has("all"),
        config_dirs=invocation.config_dirs,
        config_name=invocation.value("config_name"),
        hydra_flags=invocation.hydra_flags,
    )


def _with_named_programs(composer: Composer, invocation: Invocation, plan: Plan) -> Plan:
    """Shows the programs named in files that will be started now. Returns the plan, made again if it needed an answer
    from one of them."""
    lacked = findings_on(plan.programs)
    lines = begin_to_start(plan.programs)
    write_lines([[text(line, "yellow")] for line in lines])
    return make_plan(composer, invocation.requests, seed=plan.values["random_seed"]) if lines and lacked else plan


def _check_settings(plan: Plan) -> None:
    for key in ("ready_timeout", "stop_timeout"):
        seconds = getattr(plan.nodes.launch, key)
        if not 0 < seconds < _LONGEST_S:
            message = f"launch.{key}={seconds} is no time in seconds to wait"
            raise ConfigError.of("CLI024", message, f"launch.{key}", hint=f"launch.{key}=600")


def _settle_typed_port(invocation: Invocation) -> None:
    """Replaces ``port=0`` on the command line by a free port, so that everything shows the same one."""
    if any(request.text.startswith("launch=") and request.text != "launch=local" for request in invocation.requests):
        return  # a port that is free here may be used on the job's node
    typed = [place for place, request in enumerate(invocation.requests) if request.text.partition("=")[0] == "port"]
    if typed and invocation.requests[typed[-1]].text == "port=0":
        place = f"{invocation.requests[typed[-1]].place}: port=0 takes one that was free"
        invocation.requests[typed[-1]] = Request.typed("port", free_port(), place)
