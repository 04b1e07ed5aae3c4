"""The host: shared memory, limits, memory, ports, and the container or job that this is."""

from __future__ import annotations

from functools import partial

from sglang_hydra.run.doctor.examination import Verdict, check
from sglang_hydra.run.doctor.machine_state import Limit, World
from sglang_hydra.run.doctor.phrases import gib, listed, numbers, size

_GIB = 1 << 30
_SEGMENT = 9637888  # bytes that NCCL asks for in its well-known failure: "shared memory segment ... (size 9637888)"
_SHM_ASKED = 1 * _GIB  # what NVIDIA's NCCL guide tells containers to give
_SHM_TYPED = "32g"  # what SGLang's documented docker commands give
_NOFILE = 65535  # what SGLang 0.5.2 raises its own limit to, as far as it may (utils.py:924, set_ulimit)
_NOFILE_ENOUGH = 8192  # a judgement: a server with fewer can refuse clients under a load test
# A judgement and no measurement: each rank's process loads torch and the kernels, and a few more serve requests.
_MEMORY_PER_GPU, _MEMORY_AT_ALL = 2 * _GIB, 4 * _GIB


@check("DOC007", "/dev/shm")
def check_shared_memory(world: World) -> Verdict:
    """
    What: size and free space of the shared memory file system.
    Why: NCCL makes segments there, of about 9 MiB by its own message, and NVIDIA asks for 1 GiB. A container gets
        64 MiB by default. Inferred: each rank makes one when it starts, and more where GPUs cannot read each
        other's memory, so that 64 MiB are too little for 8 ranks.
    Source: NVIDIA's NCCL guide, troubleshooting, shared memory; the size in NCCL's own message.
    Example: 64 MiB free and 8 GPUs -> error, docker run --shm-size=32g
    """
    shm, ranks = world.shm, max(len(world.visible), world.other.count if world.other else 0)
    if shm is None:
        if ranks > 1:
            return Verdict("error", f"there is none, and {ranks} GPUs need it", _grow(world))
        return Verdict("unknown", "there is none, as on systems other than Linux")
    values = {
        "total_gib": gib(shm.total_bytes),
        "free_gib": gib(shm.free_bytes),
        "writable": shm.writable,
        "gpus": ranks,
    }
    verdict = partial(Verdict, values=values)
    if shm.free_bytes is None:
        return verdict("unknown", "its size cannot be read")
    found = f"{size(shm.free_bytes)} free of {size(shm.total_bytes)}"
    if shm.writable is False:
        return verdict(
            "error" if ranks > 1 else "warning",
            f"{found}, but this user may not write there",
            "sudo chmod 1777 /dev/shm",
        )
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


@check("DOC008", "locked memory")
def check_locked_memory(world: World) -> Verdict:
    """
    What: how much memory a process may lock (memlock), where network adapters that do RDMA are there.
    Why: RDMA registers the memory that it sends from, which locks it. Inferred: with a limit NCCL between nodes and the
        transfer of KV caches between prefill and decode servers fail or fall back to slow sockets.
    Source: NVIDIA's NCCL guide, troubleshooting: containers are started with --ulimit memlock=-1.
    Example: 8 adapters and a limit of 64 KiB -> warning, docker run --ulimit memlock=-1
    """
    bound = world.memlock
    values = {"soft_kib": _kib(bound and bound.soft), "hard_kib": _kib(bound and bound.hard), "rdma": list(world.rdma)}
    verdict = partial(Verdict, values=values)
    if bound is None:
        return verdict("unknown", "this system does not tell")
    if bound.soft is None:
        return verdict("ok", "unlimited")
    found = f"limited to {_kib(bound.soft)} KiB"
    if world.rdma:
        found += f"; RDMA ({listed(world.rdma)}) needs more"
        return verdict("warning", found, _raise(world, "memlock", "-1", "-l unlimited"))
    return verdict("ok", f"{found}, and there is no RDMA adapter that needs more")


@check("DOC009", "open files")
def check_open_files(world: World) -> Verdict:
    """
    What: how many files and connections a process may have open (nofile).
    Why: every client connection is one. SGLang raises its own limit to 65535 when it starts; where the hard limit is
        below that the attempt fails and the soft limit stays. Inferred: below 8192 clients may be refused.
    Source: SGLang 0.5.2, utils.py:924.
    Example: soft 1024, hard 4096 -> warning, ulimit -n 65535
    """
    bound = world.nofile
    if bound is None:
        return Verdict("unknown", "this system does not tell")
    values = {"soft": bound.soft, "hard": bound.hard, "wanted": _NOFILE}
    verdict = partial(Verdict, values=values)
    if bound.hard is None or bound.hard >= _NOFILE:
        return verdict("ok", f"SGLang may raise its limit to {_NOFILE} ({_shown(bound)})")
    found = f"SGLang cannot raise its limit to {_NOFILE} ({_shown(bound)})"
    if bound.soft is None or bound.soft >= _NOFILE_ENOUGH:
        return verdict("ok", f"{found}, which is enough for most loads")
    fix = _raise(world, "nofile", f"{_NOFILE}:{_NOFILE}", f"-n {_NOFILE}")
    return verdict("warning", f"{found}: at most {bound.soft} connections and files", fix)


def _shown(bound: Limit) -> str:
    return f"soft {bound.soft or 'unlimited'}, hard {bound.hard or 'unlimited'}"


def _raise(world: World, name: str, value: str, shell: str) -> str:
    if world.container in ("docker", "podman"):
        return f"{world.container} run --ulimit {name}={value} ..."
    if world.job:
        return f"ulimit {shell} in the job's script; the administrator sets the hard limit"
    return f"ulimit {shell} (the hard limit: /etc/security/limits.conf, or systemd's Limit{name.upper()}=)"


def _kib(amount: int | None) -> int | None:
    return None if amount is None else amount // 1024


@check("DOC010", "host memory")
def check_host_memory(world: World) -> Verdict:
    """
    What: the memory that a new process can take, the limit of its container or job included.
    Why: each rank is a process that loads torch and its kernels; the kernel kills one that goes over the limit, and
        the server's log ends without a word. Without an accelerator the weights live there too.
    Source: /proc/meminfo and the control group's limit. The need of 2 GiB a GPU and 4 GiB at least is a judgement.
    Example: 3 GiB free of 16 and a GPU -> warning
    """
    memory, ranks = world.memory, len(world.visible)
    values = {"total_gib": gib(memory.total), "available_gib": gib(memory.available), "limit_gib": gib(memory.limit)}
    verdict = partial(Verdict, values=values)
    if memory.available is None:
        return verdict("unknown", "this system does not tell")
    found = f"{size(memory.available)} free of {size(memory.total)}"
    if memory.limit is not None and (memory.total is None or memory.limit < memory.total):
        found += f", limited to {size(memory.limit)}"
    weights = world.model.weight_bytes if world.model else None
    if not world.accelerated and weights is not None and weights > memory.available:
        fix = "a smaller model, or a machine with an accelerator (gpu=CLASS plans for it)"
        return verdict("error", f"{found}; the weights alone are {size(weights)}", fix)
    need = max(_MEMORY_AT_ALL, ranks * _MEMORY_PER_GPU)
    if memory.available < need:
        return verdict("warning", f"{found}; a server wants about {size(need)}", _more_memory(world))
    return verdict("ok", found)


def _more_memory(world: World) -> str:
    if world.memory.limit is None:
        return "ps aux --sort=-rss | head, and stop what holds it"
    if world.container == "kubernetes":
        return "a higher resources.limits.memory in the pod"
    if world.container in ("docker", "podman"):
        return f"{world.container} run --memory=64g ..."
    return "sbatch --mem=64G (or 0 for all of the node)" if world.job else "a higher MemoryMax= in the systemd unit"


@check("DOC019", "container and job")
def check_container(world: World) -> Verdict:
    """
    What: whether this runs in a container or a batch job.
    Why: both set limits of their own (shared memory, memory, files, GPUs), and the fixes above depend on which it is.
    Source: the marks that docker, podman, kubernetes and apptainer leave; the job schedulers' variables.
    Example: kubernetes, Slurm job 1234
    """
    kinds = [kind for kind in (world.container, world.job) if kind]
    values = {"container": world.container, "job": world.job}
    return Verdict("ok", ", ".join(kinds) or "neither, as far as one can tell from here", values=values)


@check("DOC014", "ports")
def check_ports(world: World) -> Verdict:
    """
    What: whether the server's port is free, and those above it that DP attention uses between its processes.
    Why: SGLang listens on its port only once the weights are loaded, and a taken one fails it then. With
        enable_dp_attention five ports from port + 234 on are taken, and one more for each data parallel rank (8 are
        looked at). Any other port is searched for until one is free.
    Source: SGLang 0.5.2, server_args.py:2594-2653.
    Example: port 30000 in use by process 4242 (python) -> error, port=30001
    """
    taken = [port for port in world.ports if port.obstacle is not None]
    values = {"port": world.request.port, "taken": [port.number for port in taken]}
    verdict = partial(Verdict, values=values)
    details = tuple(port.obstacle.message for port in taken if port.obstacle is not None)
    for port in taken:
        if port.purpose == "http" and port.obstacle is not None:
            return verdict("error", port.obstacle.message, port.obstacle.hint, details)
    inner = [port.number for port in world.ports if port.purpose != "http"]
    if taken:
        found = (
            f"{world.request.port} is free; {numbers(port.number for port in taken)} is not, which DP attention needs"
        )
        return verdict("warning", found, f"port={_elsewhere(world)} with enable_dp_attention=true", details)
    rest = f", and {numbers(inner)} for DP attention" if inner else ""
    return verdict("ok", f"{world.request.host}:{world.request.port} is free{rest}")


def _elsewhere(world: World) -> int:
    return world.request.port + 100 if world.request.port < 60000 else 30000
