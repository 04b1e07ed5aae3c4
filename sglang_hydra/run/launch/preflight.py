"""Checks this machine against a plan, completely, before anything starts.

The doctor observes and judges most facts; this module narrows it to the plan's own GPUs, ports and model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sglang_hydra.arguments.layout import names_of
from sglang_hydra.facts.hub import cache_root
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.fit.result import Fit
from sglang_hydra.planning.engines.base import Machine, read_machine
from sglang_hydra.planning.making.memory import checkpoint_bytes, fit_of, fit_settings
from sglang_hydra.planning.making.paths import missing_paths
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.placement import gpu_offsets
from sglang_hydra.rules.rule import Facts
from sglang_hydra.run.doctor import model_files, observe, storage
from sglang_hydra.run.doctor.examination import Check, mib, numbers
from sglang_hydra.run.doctor.gpus import BALANCE, HELD_MIB, LEFT, holder_lines, how_to_stop
from sglang_hydra.run.doctor.machine_state import Examinee, Gpu, HubAnswer, World
from sglang_hydra.run.launch.port import port_obstacle
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import plural

# These models need no file on this disk: they are remote or have random weights.
_MODELS = ("model_path", "speculative_draft_model_path")
_NO_WEIGHTS = ("dummy", "remote", "remote_instance")


class Preflight(NamedTuple):
    """The machine as the engine gets it, and the findings: errors prevent the start."""

    machine: Machine
    findings: tuple[Finding, ...] = ()


def preflight(plan: Plan, env: Mapping[str, str] | None = None) -> Preflight:
    """Checks this machine for ``plan``. Raises nothing; every finding says what to type.

    ``env`` replaces this process's environment; the plan's own is added. Starts and writes nothing, and asks no
    network: the server itself fetches missing files."""
    seen = {**(os.environ if env is None else env), **plan.environment}
    if plan.gpu.device in (None, "cpu"):
        machine, findings = read_machine(), list[Finding]()
    else:
        machine, findings = look_at_gpus(plan, seen)
    findings += [*port_findings(plan), *version_findings(plan), *model_findings(plan, seen), *path_findings(plan)]
    return Preflight(machine, tuple(findings))


def port_findings(plan: Plan) -> list[Finding]:
    """Returns findings for the ports that the server needs on this node and somebody else uses."""
    return [found for key, host, port in _ports(plan) if (found := port_obstacle(host, port, key)) is not None]


def path_findings(plan: Plan) -> list[Finding]:
    """Returns findings for missing files in arguments, except those that ``model_findings`` checks."""
    named = {name: value for name, value in plan.intent.items() if name not in _MODELS}
    return list(missing_paths(named, served_here=True))


def _ports(plan: Plan) -> Iterator[tuple[str, str, int]]:
    """Yields key, host and number of each port fixed before the start. The head's store listens on every address."""
    from sglang_hydra.planning.topology.placement import ports_of

    values = plan.values
    host = str(values["host"])
    head = not values["node_rank"]
    # SGLang chooses random ports among free ones.
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
    """Returns a finding if the SGLang in ``engine.python`` is not the release that ``engine.version`` names."""
    asked = plan.nodes.engine.version
    if plan.engine.name != "sglang" or asked is None:
        return []
    from sglang_hydra.facts.installed import installed

    here = installed(plan.engine.python).versions.get("sglang")
    if here in (None, asked):
        return []
    message = f"the plan is made for SGLang {asked}, and the environment of engine.python has {here}"
    hint = f"engine.version={here} plans for the one that is there; engine.python=<an interpreter that has {asked}>"
    return [Finding("error", "LCH004", message, ("engine.version", "engine.python"), hint)]


def model_findings(plan: Plan, env: Mapping[str, str]) -> list[Finding]:
    """Returns findings for incomplete checkpoints that cannot be fetched, and for a disk too small for a download."""
    from sglang_hydra.facts.tiny import tiny_path

    values = plan.values
    # The tiny checkpoint is made when it is first needed.
    if values["load_format"] in _NO_WEIGHTS or values["model_path"] == str(tiny_path()):
        return []
    revisions = {"model_path": "revision", "speculative_draft_model_path": "speculative_draft_model_revision"}
    named = [(field, values[revision]) for field, revision in revisions.items() if values[field]]
    return [finding for own in named for finding in _checkpoint_findings(plan, env, *own)]


def _checkpoint_findings(plan: Plan, env: Mapping[str, str], field: str, revision: str | None) -> list[Finding]:
    path, download_dir = str(plan.values[field]), plan.values["download_dir"]
    if "\0" in path:
        return []
    files = model_files.look_for_model(path, env, download_dir, ask=_not_asking, revision=revision)
    disk = None
    if not files.complete and files.kind in ("hub", "cached"):
        disk = observe.space(download_dir or cache_root(env))
        files = files._replace(weight_bytes=files.weight_bytes or _download_bytes(plan, field))
    elsewhere = plan.values["tokenizer_path"] not in (None, plan.values["model_path"])
    if elsewhere or plan.values["skip_tokenizer_init"]:  # the server reads none from the checkpoint
        files = files._replace(tokenizer=True)
    world = World(env=env, request=Examinee(model_path=path, download_dir=download_dir), weights=disk, model=files)
    found = list(_judged(storage.check_model, world, field))
    if disk is not None:
        found += _judged(storage.check_weights_disk, world, "download_dir")
        if disk.writable is False:
            message = f"{path} would be downloaded to {disk.path}, where this user may not write"
            hint = "download_dir=/a/folder/of/yours, or export HF_HOME=/a/folder/of/yours"
            found.append(Finding("error", "LCH005", message, ("download_dir",), hint))
    return found


def _not_asking(path: str, env: Mapping[str, str]) -> HubAnswer:
    """Returns whether the hub may be asked, without asking it."""
    name = model_files.offline_variable(env)
    return HubAnswer("not asked", f"{name} is set" if name else "the server asks it when it starts")


def _judged(check: Check, world: World, field: str) -> Iterator[Finding]:
    """Yields the doctor's verdict as a finding about ``field``; nothing for ok or unknown."""
    verdict = check(world)
    if verdict.state == "error" or verdict.state == "warning":
        details = f": {'; '.join(verdict.details)}" if verdict.details else ""
        yield Finding(verdict.state, check.id, f"{verdict.found}{details}", (field,), verdict.fix)


def _download_bytes(plan: Plan, field: str) -> int | None:
    """Returns the size of the checkpoint's files in bytes, from the plan's facts of the model; None without these."""
    if field != "model_path" or not plan.model.known or plan.values["load_format"] == "gguf":
        return None

    return checkpoint_bytes(plan.values, plan.gpu, plan.model)


_PLACING = [name for meaning in ("tp", "stages", "copies", "nodes", "first_gpu") for name in names_of(meaning)]
"""The arguments that decide which GPUs a server takes."""


def look_at_gpus(plan: Plan, env: Mapping[str, str]) -> tuple[Machine, list[Finding]]:
    """Returns the machine with its accelerator, and findings if its GPUs are not those of the plan."""
    from sglang_hydra.facts.probe import probe_gpu

    probe = probe_gpu(env, python=plan.engine.python)
    if not probe.found or probe.vendor != plan.gpu.vendor:
        return read_machine(), [_other_vendor(plan, probe)]
    bytes_free = int(probe.visible_memory_mib * 2**20) if probe.visible_memory_mib else None
    findings = [_other_class(plan, probe)] if _is_other(plan, probe) else []
    wanted = gpu_numbers(plan)
    if wanted and wanted[-1] >= probe.count:
        findings.append(_too_few(plan, wanted, probe))
    elif probe.vendor == "nvidia" and not probe.mig:
        world = World(env=env, nvidia=observe.survey_nvidia())
        findings += memory_findings(plan, world.visible, wanted, in_container=observe.container(env) is not None)
    return read_machine(plan.gpu.device, bytes_free), findings


def gpu_numbers(plan: Plan) -> tuple[int, ...]:
    """Returns the GPUs of this node's ranks in CUDA's numbering; empty without any."""
    return tuple(plan.layout.first_gpu + offset for offset in gpu_offsets(plan))


def memory_findings(
    plan: Plan, visible: Sequence[Gpu], wanted: Sequence[int], *, in_container: bool = False
) -> list[Finding]:
    """Returns a finding if other processes hold memory of the plan's GPUs: who, and the effect on the server."""
    chosen = [visible[number] for number in wanted if number < len(visible)]
    known = [gpu for gpu in chosen if gpu.used_mib is not None and gpu.free_mib is not None]
    held = [gpu for gpu in known if (gpu.used_mib or 0.0) > HELD_MIB]
    if not held:
        return []
    fullest = min(known, key=lambda gpu: gpu.free_mib or 0.0)
    lines = [line.strip() for gpu in held for line in holder_lines(gpu, "container" if in_container else None)]
    beside = _fit_beside(plan, fullest.used_mib or 0.0)
    fatal = _why_fatal(plan, known, fullest, beside)
    message = f"others hold memory of the plan's GPUs: {'; '.join(lines)}; {fatal or _smaller(plan, beside)}"
    hint = _room_elsewhere(plan, visible, wanted, held)
    return [Finding("error" if fatal else "warning", "LCH003", message, ("base_gpu_id",), hint)]


def _why_fatal(plan: Plan, known: Sequence[Gpu], fullest: Gpu, beside: Fit | None) -> str | None:
    """Returns why the server would fail beside the other processes, as a sentence; None if it would start."""
    free, most = fullest.free_mib or 0.0, max(gpu.free_mib or 0.0 for gpu in known)
    if free < LEFT * (fullest.total_mib or 0.0):
        return f"{mib(free)} are left of {mib(fullest.total_mib)}: no server starts in that"
    if plan.engine.name != "sglang":
        return None
    if plan.values["tp_size"] > 1 and free < BALANCE * most:
        return "SGLang stops where one GPU has less than 90 % of another's free"
    if beside is not None and beside.fits is False:
        return f"with them, the plan does not fit: {'; '.join(beside.reasons)}"
    return None


def _smaller(plan: Plan, beside: Fit | None) -> str:
    planned, left = (fit.kv_tokens if fit else None for fit in (plan.fit, beside))
    if planned is None or left is None:
        return "the KV cache will be that much smaller"
    return f"the KV cache will hold about {left:,} tokens, {planned:,} are planned"


def _fit_beside(plan: Plan, used_mib: float) -> Fit | None:
    """Returns the plan's fit with the memory of other processes reserved; None without a fit."""
    if plan.fit is None:
        return None

    env = {**plan.inherited, **plan.environment}
    facts = Facts(plan.gpu, plan.model, env, plan.values["random_seed"], plan.intent)
    reserved = max(fit_settings(plan.nodes.fit)[0], used_mib / 1024)
    try:
        return fit_of(plan.resolution, facts, reserved)
    except ConfigError:  # the checkpoint's files have changed since the plan was made
        return None


def _room_elsewhere(plan: Plan, visible: Sequence[Gpu], wanted: Sequence[int], held: Sequence[Gpu]) -> list[str]:
    idle = [str(gpu.number) for gpu in visible if (gpu.used_mib or 0.0) <= HELD_MIB]
    if len(idle) < len(wanted) or "CUDA_VISIBLE_DEVICES" in os.environ:
        return [how_to_stop(held)]
    first = "with base_gpu_id=0 " if wanted[0] else ""
    return [f"CUDA_VISIBLE_DEVICES={','.join(idle[: len(wanted)])} {first}takes idle ones", how_to_stop(held)]


def _other_vendor(plan: Plan, probe: GpuProbe) -> Finding:
    found = f"{probe.count} x {probe.name}" if probe.found else "no accelerator"
    message = f"the plan is for {_asked(plan)} ({plan.gpu.vendor}), and this machine has {found}"
    hint = "start it on a machine that has one; plan works anywhere. gpu=cpu or model=tiny run here"
    return Finding("error", "GPU002", f"{message}: {'; '.join(probe.tried)}", ("gpu",), hint)


def _is_other(plan: Plan, probe: GpuProbe) -> bool:
    memory = plan.gpu.memory_mib
    if plan.nodes.lock is not None and probe.compute_capability != plan.gpu.compute_capability:
        return True
    # A lock is for this exact GPU: its values hold for no other size.
    tolerated = 0.0 if plan.nodes.lock is not None else 0.05
    return bool(memory and probe.memory_mib and abs(probe.memory_mib - memory) > tolerated * memory)


def _other_class(plan: Plan, probe: GpuProbe) -> Finding:
    locked = plan.nodes.lock is not None
    there = f"this machine has {probe.name} ({probe.memory_mib:g} MiB)"
    message = f"the {'lock' if locked else 'plan'} is for {_asked(plan)} ({plan.gpu.memory_mib:g} MiB), and {there}"
    message += ": the server will resolve its own values"
    hint = "make a new lock on this machine" if locked else "gpu=auto plans for this machine"
    return Finding("error" if locked else "warning", "GPU003", message, ("gpu",), hint)


def _too_few(plan: Plan, wanted: Sequence[int], probe: GpuProbe) -> Finding:
    hidden = f" ({probe.visible} hides {probe.total - probe.count})" if probe.visible and probe.total else ""
    fields = [name for name in _PLACING if name in plan.intent]
    shown = f"{'GPU' if len(wanted) == 1 else 'GPUs'} {numbers(wanted)}"
    message = f"the plan takes {shown}, and {plural(probe.count, 'GPU')} can be seen here{hidden}"
    hints = ["base_gpu_id=0" if wanted[0] or not probe.count else f"tp_size={1 << (probe.count.bit_length() - 1)}"]
    if probe.total > probe.count:
        hints.append("make more GPUs visible in CUDA_VISIBLE_DEVICES")
    if plan.values["nnodes"] == 1:
        hints.append(f"more nodes: nnodes={-(-len(wanted) // max(probe.count, 1))}")
    return Finding("error", "LCH002", message, tuple(fields or ["tp_size"]), hints)


def _asked(plan: Plan) -> str:
    return f"gpu={plan.choices.get('gpu') or plan.gpu.name}"
