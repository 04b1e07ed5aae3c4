"""Checks the host: shared memory, the port, and the packages in the engine's environment."""

from __future__ import annotations

from functools import partial

from sglang_hydra.releases.records import default_release
from sglang_hydra.run.doctor.examination import Checked, check, gib, size
from sglang_hydra.run.doctor.machine_state import World

_SEGMENT = 9637888  # bytes that NCCL asks for in its well-known failure: "shared memory segment ... (size 9637888)"
_SHM_ASKED = 1 << 30  # the size in NVIDIA's NCCL guide
_SHM_TYPED = "32g"  # the size in SGLang's documented docker commands


@check("DOC007", "/dev/shm")
def check_shared_memory(world: World) -> Checked:
    """
    What: size and free space of the shared memory file system.
    Why: NCCL makes segments there, of about 9 MiB by its own message, and NVIDIA asks for 1 GiB. A container gets
        64 MiB by default. Inferred: each rank makes one when it starts, and more where GPUs cannot read each
        other's memory, so that 64 MiB are too little for 8 ranks.
    Source: NVIDIA's NCCL guide, troubleshooting, shared memory; the size in NCCL's own message.
    Example: 64 MiB free and 8 GPUs -> error, docker run --shm-size=32g"""
    shm, ranks = world.shm, max(len(world.visible), world.other.count if world.other else 0)
    if shm is None:
        if ranks > 1:
            return Checked("error", f"there is none, and {ranks} GPUs need it", _grow(world))
        return Checked("unknown", "there is none, as on systems other than Linux")
    sizes = {"total_gib": gib(shm.total_bytes), "free_gib": gib(shm.free_bytes)}
    verdict = partial(Checked, values={**sizes, "writable": shm.writable, "gpus": ranks})
    if shm.free_bytes is None:
        return verdict("unknown", "its size cannot be read")
    found = f"{size(shm.free_bytes)} free of {size(shm.total_bytes)}"
    if shm.writable is False:
        found, fix = f"{found}, but this user may not write there", "sudo chmod 1777 /dev/shm"
        return verdict("error" if ranks > 1 else "warning", found, fix)
    if ranks > 1 and shm.free_bytes < _SEGMENT * ranks:
        need = size(_SEGMENT * ranks)
        return verdict("error", f"{found}; NCCL needs {need} at least for {ranks} GPUs", _grow(world))
    if ranks > 1 and shm.free_bytes < _SHM_ASKED:
        return verdict("warning", f"{found}; NVIDIA asks for 1 GiB for NCCL between {ranks} GPUs", _grow(world))
    if shm.free_bytes < _SEGMENT:
        return verdict("warning", f"{found}: next to nothing", _grow(world))
    return verdict("ok", found)


def _grow(world: World) -> str:
    shm = world.shm
    if shm is not None and shm.total_bytes and shm.free_bytes is not None and shm.total_bytes > 4 * _SHM_ASKED:
        return "ls -lh /dev/shm, and remove what servers that died left there (nccl-*, psm_*)"
    if world.container == "kubernetes":
        return "an emptyDir {medium: Memory, sizeLimit: 32Gi} mounted at /dev/shm in the pod"
    if world.container in ("docker", "podman"):
        return f"{world.container} run --shm-size={_SHM_TYPED} ... (or --ipc=host)"
    return f"sudo mount -o remount,size={_SHM_TYPED} /dev/shm"


@check("DOC014", "port")
def check_port(world: World) -> Checked:
    """
    What: whether the server's port is free.
    Why: SGLang listens on its port only once the weights are loaded, and a taken one fails it then.
    Source: SGLang 0.5.2, server_args.py:2594-2653, searches for every other port until one is free.
    Example: port 30000 in use by process 4242 (python) -> error, port=30001"""
    values, obstacle = {"port": world.request.port}, world.obstacle
    if obstacle is not None:
        return Checked("error", obstacle.message, obstacle.hint, values=values)
    return Checked("ok", f"{world.request.host}:{world.request.port} is free", values=values)


# The packages whose versions people ask for first.
_SHOWN = ("sglang", "torch", "transformers", "flashinfer-python", "sgl-kernel", "sglang-kernel", "triton")


@check("DOC016", "installed packages")
def check_packages(world: World) -> Checked:
    """
    What: the interpreter of the engine, and the versions of SGLang and of what it is built on in its environment.
    Why: without SGLang nothing is served. SGLang is released against exact versions of torch, transformers and its
        kernels; pip compares what is installed with them.
    Source: the metadata of the installed packages, read from disk.
    Example: no SGLang beside torch 2.8.0 -> warning, pip install "sglang[all]==0.5.2"
    """
    one = world.interpreter
    if one.problem:
        return Checked("error", one.problem, "engine.python=an interpreter that runs here")
    versions = {name: one.versions[name] for name in _SHOWN if name in one.versions}
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    if "sglang" in versions:
        found = f"{shown}; {one.path} -m pip check compares them with what SGLang asks for"
        return Checked("ok", found, values={"versions": versions})
    install = f'{one.path} -m pip install "sglang[all]=={default_release()}"'
    found = f"SGLang is not installed here ({shown or 'nor is torch'})"
    fix = f"engine.python=an interpreter that has it, or {install}"
    return Checked("warning", found, fix, values={"versions": versions})
