"""Finds what this machine lacks for a plan: everything at once, before anything is started.

The looking and most of the judging is the doctor's; here it is narrowed to the plan's own GPUs, ports and model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.planning.engines.base import Machine, read_machine
from sglang_hydra.planning.making.memory import checkpoint_bytes
from sglang_hydra.planning.making.paths import missing_paths
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch.port import port_obstacle
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.run.doctor.examination import Check
    from sglang_hydra.run.doctor.machine_state import ModelFiles

# Models that are on no disk or made up: nothing of them has to be here.
_MODELS = ("model_path", "speculative_draft_model_path")
_NO_WEIGHTS = ("dummy", "remote", "remote_instance")


class Preflight(NamedTuple):
    """The machine as the engine gets it, and what prevents starting here: errors, warnings, remarks."""

    machine: Machine
    findings: tuple[Finding, ...] = ()


def preflight(plan: Plan, env: Mapping[str, str] | None = None) -> Preflight:
    """Looks at this machine for ``plan``; raises nothing for what is missing, every finding says what to type.

    ``env`` replaces this process's environment, to which the plan's own is added. Nothing is started or written,
    and no network is asked: what has to be fetched, the server fetches a moment later.
    """
    seen = {**(os.environ if env is None else env), **plan.environment}
    if plan.gpu.device in (None, "cpu"):
        machine, findings = read_machine(), list[Finding]()
    else:
        from sglang_hydra.run.launch.preflight_gpus import look_at_gpus

        machine, findings = look_at_gpus(plan, seen)
    findings += [*port_findings(plan), *version_findings(plan), *model_findings(plan, seen), *path_findings(plan)]
    return Preflight(machine, tuple(findings))


def port_findings(plan: Plan) -> list[Finding]:
    """Returns the ports that the server and its processes would take on this node, and somebody else has."""
    found = []
    for key, host, port in _ports(plan):
        obstacle = port_obstacle(host, port, key)
        if obstacle is not None:
            found.append(obstacle)
    return found


def path_findings(plan: Plan) -> list[Finding]:
    """Files that arguments name and that are not here, those of models left to ``model_findings``."""
    named = {name: value for name, value in plan.intent.items() if name not in _MODELS}
    return list(missing_paths(named, served_here=True))


def _ports(plan: Plan) -> Iterator[tuple[str, str, int]]:
    """Yields key, host and number of each port that is fixed before the start. The head's store listens everywhere."""
    from sglang_hydra.planning.topology.placement import ports_of

    values = plan.values
    host = str(values["host"])
    head = not values["node_rank"]
    # A port that SGLang draws is drawn among free ones.
    places = {
        "HTTP": ("port", host),
        "NCCL": ("nccl_port", "0.0.0.0"),
        "ZeroMQ": ("port" if values["dist_init_addr"] is None else "dist_init_addr", "127.0.0.1"),
        "rendezvous": ("dist_init_addr", "0.0.0.0"),
        "bootstrap": ("disaggregation_bootstrap_port", host),
    }
    for use in ports_of(values, plan.layout):
        key, place = places[use.what]
        drawn = use.what == "NCCL" and values["nccl_port"] is None
        if drawn or (use.what in ("ZeroMQ", "rendezvous") and not head):
            continue
        yield from ((key, place, number) for number in use.ports)


def version_findings(plan: Plan) -> list[Finding]:
    """Returns an SGLang in ``engine.python`` that is not the one that ``engine.version`` names."""
    asked = plan.nodes.engine.version
    if plan.engine.name != "sglang" or asked is None:
        return []
    from sglang_hydra.facts.installed import installed

    here = installed(plan.engine.python).versions.get("sglang")
    if here is None or here == asked:
        return []
    message = f"the plan is made for SGLang {asked}, and the environment of engine.python has {here}"
    hint = f"engine.version={here} plans for the one that is there; engine.python=<an interpreter that has {asked}>"
    return [Finding("error", "LCH004", message, ("engine.version", "engine.python"), hint)]


def model_findings(plan: Plan, env: Mapping[str, str]) -> list[Finding]:
    """Checkpoints that are not here whole and cannot be fetched, and a disk that has no space for a download."""
    from sglang_hydra.facts.tiny import tiny_path

    values = plan.values
    # The tiny checkpoint is made where it is first needed.
    if values["load_format"] in _NO_WEIGHTS or values["model_path"] == str(tiny_path()):
        return []
    found = _checkpoint_findings(plan, env, "model_path", values["revision"])
    if values["speculative_draft_model_path"]:
        found += _checkpoint_findings(
            plan, env, "speculative_draft_model_path", values["speculative_draft_model_revision"]
        )
    return found


def _checkpoint_findings(plan: Plan, env: Mapping[str, str], field: str, revision: str | None) -> list[Finding]:
    from sglang_hydra.facts.hub import cache_root
    from sglang_hydra.run.doctor import storage
    from sglang_hydra.run.doctor.machine_state import Request, World
    from sglang_hydra.run.doctor.model_files import look_for_model
    from sglang_hydra.run.doctor.observe import space

    path, download_dir = str(plan.values[field]), plan.values["download_dir"]
    if not path or "\0" in path:
        return []
    files = look_for_model(path, env, download_dir, ask=_not_asking, revision=revision)
    disk = None
    if not files.complete and files.kind in ("hub", "cached"):
        disk = space(download_dir or cache_root(env))
        files = files._replace(weight_bytes=files.weight_bytes or _download_bytes(plan, field))
    named = _without_tokenizer(plan, files)
    world = World(env=env, request=Request(model_path=path, download_dir=download_dir), weights=disk, model=named)
    found = list(_judged(storage.check_model, world, field))
    if disk is not None:
        found += _judged(storage.check_weights_disk, world, "download_dir")
        if disk.writable is False:
            message = f"{path} would be downloaded to {disk.path}, where this user may not write"
            hint = "download_dir=/a/folder/of/yours, or export HF_HOME=/a/folder/of/yours"
            found.append(Finding("error", "LCH005", message, ("download_dir",), hint))
    return found


def _not_asking(path: str, env: Mapping[str, str]) -> Any:
    """Answers only whether the hub may be asked at all."""
    from sglang_hydra.run.doctor.machine_state import HubAnswer
    from sglang_hydra.run.doctor.model_files import offline_variable

    name = offline_variable(env)
    return HubAnswer("not asked", f"{name} is set" if name else "the server asks it when it starts")


def _without_tokenizer(plan: Plan, files: ModelFiles) -> ModelFiles:
    """Ignores missing tokenizer files where the server does not read them from the checkpoint."""
    values = plan.values
    elsewhere = values["tokenizer_path"] not in (None, values["model_path"])
    return files._replace(tokenizer=True) if elsewhere or values["skip_tokenizer_init"] else files


def _judged(check: Check, world: Any, field: str) -> Iterator[Finding]:
    """Yields a check of the doctor's as a finding about ``field``; what is well, or not known, is not mentioned."""
    verdict = check.look(world)
    if verdict.state == "error" or verdict.state == "warning":
        details = f": {'; '.join(verdict.details)}" if verdict.details else ""
        yield Finding(verdict.state, check.id, f"{verdict.found}{details}", (field,), verdict.fix)


def _download_bytes(plan: Plan, field: str) -> int | None:
    """Returns the size of the checkpoint's files by what the plan knows of the model; None where that is too little."""
    if field != "model_path" or not plan.model.known or plan.values["load_format"] == "gguf":
        return None

    return checkpoint_bytes(plan.values, plan.gpu, plan.model)
