"""Checks the accelerators: which exist, how much of their memory is free, who uses it, and what is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from sglang_hydra.run.doctor.examination import Checked, check, dotted, listed, mib, several
from sglang_hydra.run.doctor.machine_state import Gpu, Holder, World
from sglang_hydra.text.words import plural

_OLDEST = (7, 5)  # SGLang 0.5.2 stops on an older one when it loads the model (model_executor/model_runner.py:712)
HELD_MIB = 1024  # the driver's own memory is below this on every class
LEFT = 0.1  # share of its memory: with less free on every GPU, no server fits
BALANCE = 0.9  # SGLang 0.5.2 stops where one rank has less free than this share of another's (model_runner.py:678)


@check("DOC002", "accelerators")
def check_accelerators(world: World) -> Checked:
    """
    What: the accelerators that a server started here would see, and those that do not answer.
    Why: without one SGLang refuses to start, and one older than compute capability 7.5 is refused just before the
        weights are read. Of mixed GPUs the one with the least free memory decides for all. Inferred: one that fell off
        the bus fails the whole server. An entry of CUDA_VISIBLE_DEVICES that names nothing hides itself and all after
        it, one named twice hides everything.
    Source: NVIDIA's management library; rocminfo, hl-smi, torch for other vendors; CUDA's programming guide,
        environment variables; SGLang 0.5.2, model_runner.py:712.
    Example: GPU 3 answers "GPU is lost" -> error, sudo nvidia-smi --gpu-reset -i 3"""
    if not world.nvidia.gpus:
        return _other_accelerators(world)
    every, seen = world.nvidia.gpus, world.visible
    values = {
        "count": len(every),
        "visible": len(seen),
        "names": [gpu.name for gpu in seen],
        "memory_mib": [_rounded(gpu.total_mib) for gpu in seen],
        "compute_capability": [dotted(gpu.capability) if gpu.capability else None for gpu in seen],
    }
    verdict = partial(Checked, values=values)
    lost = [gpu for gpu in every if gpu.problem]
    details = tuple(f"GPU {gpu.number} does not answer: {gpu.problem}" for gpu in lost)
    if lost:
        fix = f"sudo nvidia-smi --gpu-reset -i {lost[0].number}, or reboot; sudo dmesg | grep -i xid says why"
        return verdict("error", f"{several([gpu.number for gpu in lost])} of {len(every)} failed", fix, details)
    if not seen:
        hidden = f"of {plural(len(every), 'GPU')} here none is visible: {_variable(world)}"
        return verdict("error", hidden, "unset CUDA_VISIBLE_DEVICES")
    known = ((gpu.name or "unnamed", mib(gpu.total_mib), dotted(gpu.capability)) for gpu in seen)
    kinds = Counter(f"{name}, {memory}, compute capability {capability}" for name, memory, capability in known)
    found = "; ".join(f"{count} x {kind}" for kind, count in kinds.items())
    if len(seen) < len(every):
        found += f" (visible of {len(every)})"
    if world.seen.note:
        return verdict("warning", f"{found}: {_variable(world)}", "unset CUDA_VISIBLE_DEVICES")
    old = [gpu.number for gpu in seen if gpu.capability is not None and gpu.capability < _OLDEST]
    if old:
        rest = ",".join(str(gpu.number) for gpu in seen if gpu.number not in old)
        fix = f"CUDA_VISIBLE_DEVICES={rest}" if rest else "engine=transformers serves on any GPU that torch supports"
        return verdict("error", f"{found}: {several(old)} too old, SGLang needs compute capability 7.5", fix)
    if len(kinds) > 1:
        most = Counter(gpu.name for gpu in seen).most_common(1)[0][0]
        fix = f"CUDA_VISIBLE_DEVICES={','.join(str(gpu.number) for gpu in seen if gpu.name == most)}"
        return verdict("warning", f"{found}: among different GPUs, the smallest decides for all", fix)
    return verdict("ok", found)


def _other_accelerators(world: World) -> Checked:
    probe, wanted = world.other, world.request.gpu
    tried = probe.tried if probe else ()
    values: dict[str, object] = {"count": probe.total if probe else 0, "visible": 0}
    if probe is not None and probe.device == "cpu":
        return Checked("ok", "none is used: SGLANG_USE_CPU_ENGINE=1 chooses SGLang's CPU engine", values=values)
    if probe is None or not probe.found:
        if world.request.device == "cpu":
            return Checked("ok", f"none was found, and gpu={wanted} needs none", values=values)
        if wanted is not None:
            fix = "doctor on the machine that has it; plan and fit need no GPU; model=tiny alone tries a server here"
            return Checked("error", f"no accelerator was found, and the plan is for {wanted}", fix, tried, values)
        fix = "gpu=h100 (or another class) plans for a machine that has one; gpu=cpu plans for SGLang's CPU engine"
        fix += "; model=tiny tries a server here"
        return Checked("warning", "no accelerator was found; SGLang needs one, or its CPU engine", fix, tried, values)
    values = {
        "count": probe.total,
        "visible": probe.count,
        "names": list(probe.names),
        "memory_mib": probe.memory_mib,
        "compute_capability": dotted(probe.compute_capability) if probe.compute_capability else None,
    }
    found = f"{probe.count} x {probe.name or 'unnamed'}, {mib(probe.memory_mib)} ({probe.vendor})"
    return Checked("ok", found, None, tried, values)


@check("DOC003", "GPU memory")
def check_gpu_memory(world: World) -> Checked:
    """
    What: how much of each visible GPU is free, and which processes hold the rest.
    Why: SGLang sizes the KV cache from what is free when it starts, and with tp_size above 1 it stops where one GPU
        has less than 90 % of another's free. Inferred: a server that died may leave processes
        that hold everything.
    Source: NVIDIA's management library; SGLang 0.5.2, model_runner.py:678. Only program names are shown: a command
        line may hold a key.
    Example: GPU 1 has 1200 of 143771 MiB free, process 4242 (python) holds 141000 MiB -> warning"""
    seen = [gpu for gpu in world.visible if not gpu.problem]
    if not seen:
        return Checked("unknown" if world.accelerated else "ok", "no NVIDIA GPU to ask")
    holders = [(gpu, holder) for gpu in seen for holder in gpu.holders or ()]
    values = {
        "free_mib": [_rounded(gpu.free_mib) for gpu in seen],
        "used_mib": [_rounded(gpu.used_mib) for gpu in seen],
        "holders": [
            {"gpu": gpu.number, "pid": one.pid, "name": one.name, "memory_mib": _rounded(one.memory_mib)}
            for gpu, one in holders
        ],
    }
    verdict = partial(Checked, values=values)
    known = [gpu for gpu in seen if gpu.free_mib is not None]
    if not known:
        return verdict("unknown", "the driver does not report it, as is usual under MIG")
    free = [gpu.free_mib or 0.0 for gpu in known]
    held = [gpu for gpu in known if (gpu.used_mib or 0.0) > HELD_MIB]
    found = f"{mib(min(free))} free on the fullest of {plural(len(known), 'GPU')}"
    if not held:
        return verdict("ok", found)
    details = tuple(line for gpu in held for line in holder_lines(gpu, world.container))
    found += f"; other processes hold memory of {several([gpu.number for gpu in held])}"
    if len(known) > 1 and min(free) < BALANCE * max(free):
        found += ": SGLang stops with tp_size over these, as one has less than 90 % of another's free memory"
    hopeless = all((gpu.free_mib or 0.0) < LEFT * (gpu.total_mib or 0.0) for gpu in known)
    free_numbers = [str(gpu.number) for gpu in known if gpu not in held]
    fix = how_to_stop(held) + (f", or CUDA_VISIBLE_DEVICES={','.join(free_numbers)}" if free_numbers else "")
    return verdict("error" if hopeless else "warning", found, fix, details)


def holder_lines(gpu: Gpu, container: str | None) -> Iterator[str]:
    """Yields the used memory of a GPU, and one line for each visible process that holds some."""
    yield f"GPU {gpu.number}: {mib(gpu.used_mib)} of {mib(gpu.total_mib)} used"
    for holder in gpu.holders or ():
        yield f"  {named(holder)} holds {mib(holder.memory_mib)}"
    if not gpu.holders:
        where = "in another container or on the host" if container else "of another user, or a process that crashed"
        yield f"  by processes that cannot be seen from here ({where})"


def how_to_stop(held: Sequence[Gpu]) -> str:
    """Returns what to type to free the memory that other processes hold on these GPUs."""
    holders = list(dict.fromkeys(named(holder) for gpu in held for holder in gpu.holders or ()))
    return f"stop {listed(holders)}" if holders else "stop what holds it (sudo nvidia-smi names the processes)"


def _rounded(amount: float | None) -> int | None:
    return None if amount is None else round(amount)


def named(holder: Holder) -> str:
    """Returns ``process 4242 (python)``."""
    return f"process {holder.pid}" + (f" ({holder.name})" if holder.name else "")


def _variable(world: World) -> str:
    value = world.env.get("CUDA_VISIBLE_DEVICES") or "''"
    return f"CUDA_VISIBLE_DEVICES={value}: {world.seen.note or 'no GPU is visible'}"
