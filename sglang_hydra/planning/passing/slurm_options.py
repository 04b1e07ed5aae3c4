"""Checks ``launch.slurm`` and formats it as options of sbatch and srun, for ``launch=slurm`` and ``export slurm``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sglang_hydra.arguments.meant import in_units_of
from sglang_hydra.compose.schema import LaunchNode
from sglang_hydra.compose.settings.launch import SlurmNode
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import json_beside
from sglang_hydra.text.words import nearest

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan
    from sglang_hydra.planning.topology.servers import Topology

GPU_OPTIONS = ("gpus_per_node", "gres", "none")
CONTAINERS = ("none", "pyxis", "apptainer")

_TIME = re.compile(r"\d+-\d{1,2}(:\d{1,2}){0,2}|\d+(:\d{1,2}){1,2}")
_MEMORY = re.compile(r"\d+[KMGT]?", re.IGNORECASE)
_OPTION = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_MOUNT = re.compile(r"[^:,\s]+(:[^:,]+){0,2}")
_TEXTS = ("account", "partition", "qos", "constraint", "walltime", "gpu_type", "mem")
_TABLE = json_beside(__file__)
_OF_ONE_VALUE: Mapping[str, str] = _TABLE["of_one_value"]
_HIDDEN = f"{_TABLE['without_key']} {_TABLE['hiding_the_number']}".split()
_OURS: Mapping[str, str | None] = {**_OF_ONE_VALUE, **_TABLE["others"], **dict.fromkeys(_HIDDEN)}
"""Options of sbatch that would change the job or hide its number, with our equivalent key, if there is one."""
_IN_JOB_NAME = 40
_JOB_NAME = re.compile(r"[\w.@+-]+")


def gpus_per_node(plan: Plan) -> int:
    """Returns the GPUs that each node must give the plan: up to the highest number of its ranks."""
    if plan.gpu.device in (None, "cpu") or plan.values["device"] == "cpu":
        return 0
    numbers = plan.layout.gpu_numbers()
    return max(numbers) + 1 if numbers else plan.gpu.count or 0


def sbatch_settings(plan: Plan, nodes: int | None = None, gpus: int | None = None) -> dict[str, str | bool]:
    """Returns the options of sbatch for a plan: long options without dashes, a switch as True. One task a node.

    ``nodes`` and ``gpus`` (per node) replace the plan's."""
    settings = plan.nodes.launch.slurm
    options: dict[str, str | bool] = {
        "job-name": job_name(plan),
        "nodes": str(nodes or plan.values["nnodes"]),
        "ntasks-per-node": "1",
    }
    count, kind = gpus_per_node(plan) if gpus is None else gpus, f"{settings.gpu_type}:" if settings.gpu_type else ""
    if count and settings.gpus != "none":
        options |= {"gres": f"gpu:{kind}{count}"} if settings.gpus == "gres" else {"gpus-per-node": f"{kind}{count}"}
    for option, key in _OF_ONE_VALUE.items():
        if getattr(settings, key) is not None:
            options[option] = str(getattr(settings, key))
    if settings.exclusive:
        options["exclusive"] = True
    # A second start would find other ports and no key.
    options["no-requeue"] = True
    for option, value in settings.sbatch.items():
        if value is not None and value is not False:
            options[option.replace("_", "-")] = True if value is True else str(value)
    return options


def sbatch_settings_of(topology: Topology) -> dict[str, str | bool]:
    """Returns the options of sbatch for several servers: all of their nodes, each with the fullest one's GPUs."""
    gpus = [gpu for server in topology.servers for gpu in server.gpus]
    return sbatch_settings(topology.common, nodes=topology.nodes, gpus=max(gpus) + 1 if gpus else 0)


def srun_settings(plan: Plan, programs: Sequence[str] = ()) -> list[str]:
    """Returns the words for srun from a plan's settings, the container included. ``programs`` are folders that the
    container needs besides the configured mounts."""
    settings = plan.nodes.launch.slurm
    words = [*(f"--cpus-per-task={settings.cpus}" for _ in range(settings.cpus is not None)), *settings.srun]
    if settings.container == "pyxis":
        words.append(f"--container-image={plan.nodes.launch.image}")
        mounts = _mounts(settings, programs)
        words += [f"--container-mounts={','.join(mounts)}"] if mounts else []
    return words


def container_command(plan: Plan, programs: Sequence[str] = ()) -> list[str]:
    """Returns the words before a rank's own command: apptainer with its image, or nothing."""
    settings = plan.nodes.launch.slurm
    if settings.container != "apptainer":
        return []
    vendor = {"nvidia": ["--nv"], "amd": ["--rocm"]}.get(plan.gpu.vendor, [])
    binds = [word for mount in _mounts(settings, programs) for word in ("--bind", mount)]
    return ["apptainer", "exec", *vendor, *binds, str(plan.nodes.launch.image)]


def job_name(plan: Plan) -> str:
    """Returns a name for squeue: the model's, without characters special to a shell or Slurm."""
    model = str(plan.values["served_model_name"] or plan.values["model_path"]).rstrip("/").rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.")[:_IN_JOB_NAME]
    return f"sglang-{plain}" if plain else "sglang"


def slurm_findings(launch: LaunchNode, model_path: str = "") -> Iterator[Finding]:
    """Yields the errors in the ``launch`` node that Slurm would misread or reject, each with the fix."""
    settings = launch.slurm
    for name in _TEXTS:
        value = getattr(settings, name)
        if value is not None and (not str(value).strip() or not str(value).isprintable()):
            yield _wrong(name, value, "must be text in one line", f"launch.slurm.{name}=null")
    yield from _one_of(settings, "gpus", GPU_OPTIONS)
    yield from _one_of(settings, "container", CONTAINERS)
    walltime, mem, cpus = settings.walltime, settings.mem, settings.cpus
    if walltime is not None and not _TIME.fullmatch(str(walltime)):
        # YAML reads a bare 4:00:00 as the number 14400; a smaller one is probably meant in minutes, as Slurm takes it.
        why = "is no time of the form H:MM:SS or D-HH:MM:SS (in YAML it needs quotes)"
        read, is_bare = in_units_of("walltime", str(walltime)), str(walltime).isdigit()
        seconds = float(read or 14400)
        unit, each = ("minutes", 60) if is_bare and seconds < 3600 else ("seconds", 1)
        minutes, rest = divmod(int(seconds * each), 60)
        meant = f"launch.slurm.walltime={minutes // 60}:{minutes % 60:02}:{rest:02}"
        hint = f"{meant} where {walltime} are {unit}" if is_bare else meant if read else f"such as {meant}"
        yield _wrong("walltime", walltime, why, hint)
    if mem is not None and not _MEMORY.fullmatch(str(mem)):
        yield _wrong("mem", mem, "is no size as Slurm writes it", "such as launch.slurm.mem=200G")
    if cpus is not None and cpus < 1:
        yield _wrong("cpus", cpus, "must be at least 1", "such as launch.slurm.cpus=16")
    for name in ("setup", "srun", "mounts"):
        for line in getattr(settings, name):
            if not str(line).isprintable():
                yield _wrong(name, line, "must be one line each", f"launch.slurm.{name}=[...]")
    yield from _container_findings(launch, model_path)
    for option, value in settings.sbatch.items():
        if not (settings.gpus == "none" and _OURS.get(str(option).replace("_", "-")) == "gpus"):
            yield from _extra_option(str(option), value)


def _container_findings(launch: LaunchNode, model_path: str) -> Iterator[Finding]:
    settings = launch.slurm
    if settings.container == "none":
        if settings.mounts:
            yield _wrong("mounts", settings.mounts, "needs a container", "launch.slurm.container=pyxis")
        return
    if settings.container in CONTAINERS and not launch.image:
        message = f"launch.slurm.container={settings.container} needs launch.image"
        yield Finding("error", "SLM002", message, ("launch.image",), "launch.image=lmsysorg/sglang:v0.5.2-cu126")
    for mount in settings.mounts:
        if not _MOUNT.fullmatch(str(mount)):
            yield _wrong("mounts", mount, "is no SOURCE:TARGET", "launch.slurm.mounts=[/data:/data]")
    if model_path and not os.path.isabs(model_path) and os.path.isdir(model_path):
        message = f"model_path={model_path} is a folder below this one, which a container does not start in"
        yield Finding("error", "SLM002", message, ("model_path",), f"model_path={os.path.abspath(model_path)}")


def _extra_option(option: str, value: object) -> Iterator[Finding]:
    name = option.replace("_", "-")
    key = f"sbatch.{option}"
    if not _OPTION.fullmatch(option):
        yield _wrong(key, value, "is no long option of sbatch", "launch.slurm.sbatch.reservation=NAME")
    elif name in _OURS:
        own = _OURS[name]
        hint = f"launch.slurm.{own}=..." if own else f"leave out launch.slurm.{key}"
        why = "has a setting of its own" if own else "would make it another job"
        yield _wrong(key, value, why, hint)
    elif name == "job-name" and not _JOB_NAME.fullmatch(str(value)):
        yield _wrong(key, value, "must be one plain word", f"launch.slurm.{key}=sglang")
    elif isinstance(value, (dict, list)) or not str(value).isprintable():
        yield _wrong(key, value, "must be text in one line, a number or true", f"launch.slurm.{key}=VALUE")


def _mounts(settings: SlurmNode, programs: Sequence[str]) -> list[str]:
    return [*map(str, settings.mounts), *(f"{folder}:{folder}:ro" for folder in programs)]


def _one_of(settings: SlurmNode, name: str, allowed: Sequence[str]) -> Iterator[Finding]:
    value = getattr(settings, name)
    if value not in allowed:
        near = nearest(str(value), allowed) or allowed[0]
        yield _wrong(name, value, f"is not one of {', '.join(allowed)}", f"launch.slurm.{name}={near}")


def _wrong(key: str, value: object, why: str, hint: str) -> Finding:
    return Finding("error", "SLM001", f"launch.slurm.{key}={value} {why}", (f"launch.slurm.{key}",), hint)
