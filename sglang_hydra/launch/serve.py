"""``serve``: from a plan to a running server, and nothing started before everything has been looked at."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_hydra.app import make_plan
from sglang_hydra.compose import Composer
from sglang_hydra.config import PRIMARY_NAME, conf_dir
from sglang_hydra.engines.base import Machine
from sglang_hydra.engines.choose import choose
from sglang_hydra.engines.machine import read_machine, weights_bytes
from sglang_hydra.engines.planned import plan_engine
from sglang_hydra.errors import ConfigError, MachineError, SglangHydraError
from sglang_hydra.explain import finding_lines, plan_screen
from sglang_hydra.findings import Finding
from sglang_hydra.launch.local import Launch, LocalServer, Outcome
from sglang_hydra.launch.local import serve as run_server
from sglang_hydra.overrides import Request
from sglang_hydra.plans import Plan
from sglang_hydra.screen import Line, text, write
from sglang_hydra.tiny import ensure_tiny, tiny_path

if TYPE_CHECKING:
    from sglang_hydra.cli import Invocation


_FULL_ERROR = "HYDRA_FULL_ERROR"
_LONGEST_S = 7 * 24 * 3600


def serve_plan(composer: Composer, invocation: Invocation) -> int:
    """Plans, shows, checks the machine, and runs the server until it ends. Returns the exit code."""
    if invocation.hydra:
        return _in_hydra(composer, invocation, lambda: 0, raw=True)
    plan = make_plan(composer, invocation.requests)
    _check_settings(plan)
    if not _may_start(plan):
        write(plan_screen(plan))
        if _only_lacks_accelerator(plan):
            # Refused for want of a GPU where none was asked for: what is missing is an engine that needs none.
            choose(plan.nodes["engine"]["name"], plan.engine.python, read_machine(), None)
        return 2
    try:
        machine, remarks = _look_at_machine(plan)
        plan = _settle_engine(composer, invocation.requests, plan, machine)
    except MachineError:
        write(plan_screen(plan))
        raise
    plan = _with_port(composer, invocation, plan)
    write([*plan_screen(plan), *finding_lines(remarks, plan)])
    if not _may_start(plan):
        return 2
    return _in_hydra(composer, invocation, lambda: _run(plan, machine))


def launch_of(plan: Plan, machine: Machine, log_file: Path | None = None) -> Launch:
    """What is started for a plan: the intent, the key apart from it, and how readiness is told."""
    planned = plan_engine(plan.nodes["engine"], embedded_first=True)
    request = planned.request(plan.resolution, plan.environment, machine)
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


def _check_settings(plan: Plan) -> None:
    """Raises ConfigError for times that cannot be waited."""
    for key in ("ready_timeout", "stop_timeout"):
        seconds = plan.nodes["launch"][key]
        if not 0 < seconds < _LONGEST_S:
            message = f"launch.{key}={seconds} is no time in seconds to wait"
            raise ConfigError(Finding("error", "CLI024", message, (f"launch.{key}",), f"launch.{key}=600"))


def _may_start(plan: Plan) -> bool:
    return plan.launchable or (plan.ok and bool(plan.nodes["launch"]["force"]))


def _only_lacks_accelerator(plan: Plan) -> bool:
    return plan.gpu.device is None and [finding.fields for finding in plan.errors] == [("device",)]


def _with_secret(request: Any, plan: Plan) -> Any:
    from dataclasses import replace

    return replace(request, intent={**request.intent, **plan.secrets}) if plan.secrets else request


def _look_at_machine(plan: Plan) -> tuple[Machine, list[Finding]]:
    """What is here, against what the plan is for. Raises MachineError where the plan's kind of device is missing."""
    if plan.gpu.device in (None, "cpu"):
        return read_machine(), []
    from sglang_hydra.facts.probe import probe_gpu

    probe = probe_gpu(os.environ, python=plan.engine.python)
    asked = f"gpu={plan.choices.get('gpu') or plan.gpu.name}"
    if not probe.found or probe.vendor != plan.gpu.vendor:
        found = f"{probe.count} x {probe.name}" if probe.found else "no accelerator"
        raise MachineError(
            Finding(
                "error",
                "GPU002",
                f"the plan is for {asked} ({plan.gpu.vendor}), and this machine has {found}: {'; '.join(probe.tried)}",
                ("gpu",),
                "start it on a machine that has one; plan works anywhere. gpu=cpu or model=tiny run here",
            )
        )
    bytes_free = int(probe.visible_memory_mib * 2**20) if probe.visible_memory_mib else None
    machine = read_machine(plan.gpu.device, bytes_free)
    return machine, [_other_gpu(plan, asked, probe)] if _is_other(plan, probe) else []


def _is_other(plan: Plan, probe: Any) -> bool:
    memory = plan.gpu.memory_mib
    return bool(memory and probe.memory_mib and abs(probe.memory_mib - memory) > 0.05 * memory)


def _other_gpu(plan: Plan, asked: str, probe: Any) -> Finding:
    return Finding(
        "warning",
        "GPU003",
        f"the plan is for {asked} ({plan.gpu.memory_mib:g} MiB), and this machine has {probe.name} "
        f"({probe.memory_mib:g} MiB): the server will resolve its own values",
        ("gpu",),
        "gpu=auto plans for this machine",
    )


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


def _with_port(composer: Composer, invocation: Invocation, plan: Plan) -> Plan:
    """For ``port=0``: the plan with a port that is free now, so that everybody knows it."""
    if plan.values["port"] != 0:
        return plan
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    invocation.requests.append(Request.typed("port", port, "port=0: one that was free"))
    engine = Request(f"engine={plan.engine.name}", "engine=auto", "engine")
    rest = [request for request in invocation.requests if request.text.partition("=")[0] != "engine"]
    return make_plan(composer, [*rest, engine], seed=int(plan.values["random_seed"]))


def _run(plan: Plan, machine: Machine) -> int:
    """Inside Hydra's run folder: leaves the plan there, starts the server, waits for its end."""
    from hydra.core.hydra_config import HydraConfig

    folder = Path(HydraConfig.get().runtime.output_dir)
    _write_whole(folder / "plan.json", json.dumps(plan.to_json(), indent=2) + "\n")

    def ready(server: LocalServer, seconds: float) -> None:
        write(_ready_lines(plan, server.launch.url, seconds))

    outcome: Outcome = run_server(launch_of(plan, machine, folder / "server.log"), on_ready=ready)
    write(finding_lines(outcome.findings), sys.stderr)
    return outcome.exit_code


def _ready_lines(plan: Plan, url: str, seconds: float) -> list[Line]:
    name = plan.values["served_model_name"] or plan.values["model_path"]
    body = json.dumps(
        {"model": name, "messages": [{"role": "user", "content": "Hello!"}], "stream": True, "max_tokens": 32}
    )
    key = ' -H "Authorization: Bearer $KEY"' if plan.secrets else ""
    lines: list[Line] = [
        [],
        [text(f"Ready after {seconds:.1f} s at {url}", "bold green")],
        [text(f"  curl -N {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'")],
    ]
    if plan.nodes["model"]["name"] == "tiny":
        lines.append([text("  tiny has random weights: its text is random on purpose", "dim")])
    return [*lines, [text("  Ctrl-C stops it", "dim")], []]


def _in_hydra(composer: Composer, invocation: Invocation, task: Callable[[], int], *, raw: bool = False) -> int:
    """Runs ``task`` as a Hydra job: with its run folder, its record of the overrides and its logging."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    codes: list[int] = []

    def serve(config: Any) -> None:
        _restore(_FULL_ERROR, full_error)
        try:
            codes.append(task())
        except SglangHydraError as failure:
            write(finding_lines(list(failure.findings)), sys.stderr)
            codes.append(failure.exit_code)

    own = [request.text for request in invocation.requests if request.text.startswith(("hydra.", "hydra/"))]
    words = [*composer.canonical(invocation.requests), *own]
    folders = [word for folder in invocation.config_dirs[:1] for word in ("--config-dir", folder)]
    main = hydra.main(
        version_base="1.3", config_path=str(conf_dir()), config_name=invocation.config_name or PRIMARY_NAME
    )
    before, full_error = sys.argv, os.environ.get(_FULL_ERROR)
    # Otherwise Hydra prints its errors in its own words and leaves with its own exit code.
    os.environ[_FULL_ERROR] = "1"
    sys.argv = [before[0], *words, *folders, *(_hydra_flags(before[1:]) if raw else [])]
    try:
        main(serve)()
    except (HydraException, OmegaConfBaseException, OSError) as failure:
        said = " ".join(str(failure).split())
        hint = "hydra.run.dir=FOLDER names the run folder; python serve.py --hydra-help lists Hydra's own keys"
        raise ConfigError(
            Finding("error", "CLI023", f"Hydra cannot set up the run: {said}", ("hydra",), hint)
        ) from failure
    finally:
        sys.argv = before
        _restore(_FULL_ERROR, full_error)
    return codes[-1] if codes else 0


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _hydra_flags(words: Sequence[str]) -> list[str]:
    """The flags that only Hydra reads (``--cfg job``), with their values."""
    from sglang_hydra.cli import HYDRA_FLAGS

    kept: list[str] = []
    for position, word in enumerate(words):
        if word.partition("=")[0] in HYDRA_FLAGS:
            following = words[position + 1 : position + 2]
            kept += [word, *(value for value in following if "=" not in value and not value.startswith("-"))]
    return kept


def _write_whole(path: Path, content: str) -> None:
    """Writes a file that is there whole or not at all."""
    draft = path.with_name(f".{path.name}.part")
    draft.write_text(content, encoding="utf-8")
    draft.replace(path)
