"""Writes ``export compose``: a Compose file for one host; with several nodes each runs the same file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from sglang_hydra.convert.export import docker
from sglang_hydra.convert.export.images import LAUNCH_SERVER, missing_image
from sglang_hydra.convert.export.job import HEAD, RANK, Artifact, Job
from sglang_hydra.convert.export.manifest import manifest
from sglang_hydra.convert.export.quoting import Variable, Word, commented, compose
from sglang_hydra.convert.export.variables import KEY_WHY
from sglang_hydra.fit.host import SHARED_GIB
from sglang_hydra.planning.passing import fabric
from sglang_hydra.planning.passing.passed import IMAGE_VARIABLE, KEY_VARIABLE
from sglang_hydra.planning.topology.servers import NODE
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.yaml_text import Block, yaml_text

_HEALTH_S = 30
"""Seconds that /health may take: it generates a token, and queues for it."""


def export(job: Job) -> Artifact:
    docker.require_container_vendor(job)
    findings, start = [*job.container_findings()], ["Start it with: docker compose -f THIS_FILE up"]
    if job.nodes > 1:
        up = f"{' HEAD_ADDRESS=ADDRESS' if job.needs_head else ''} docker compose -f THIS_FILE up"
        start = ["Compose knows one host. Start it on each node; the server answers on node 0."]
        start += [f"  on node {rank}: NODE_RANK={rank}{up}" for rank in range(job.nodes)]
        message = f"compose knows one host: start this file on each of the {job.nodes} nodes, with its NODE_RANK"
        hint = "export k8s or slurm start all of them"
        findings.append(Finding("warning", "EXP011", message, ("nnodes",), hint))
    more = ["", *docker.listening_lines(job, docker.published_port(job)), *docker.driver_lines(job.image), *start]
    more += KEY_WHY if job.has_key else ()
    document = {"name": job.name, "services": {"sglang": service(job)}}
    text = commented(job.header("compose", *more)) + yaml_text([document])
    return Artifact(text, tuple(findings))


def service(
    job: Job,
    gpu_ids: Sequence[int] | None = None,
    *,
    published: bool = True,
    flags: Sequence[Word] | None = None,
    host_network: bool = False,
) -> JsonDict:
    """Builds the service of one server, or of this host's rank. ``gpu_ids`` are its GPUs if others run beside it,
    ``flags`` replace those of the job. Without ``published`` only other services reach it."""
    settings = job.plan.nodes.launch
    ask = f"import urllib.request as ask; ask.urlopen('http://127.0.0.1:{job.port}/health', timeout={_HEALTH_S})"
    host_network = host_network or docker.needs_host_network(job)
    return manifest(
        "compose_service",
        image=_image(job),
        command=[in_command(job, word) for word in _words(job, flags)],
        shared=SHARED_GIB,
        network={"network_mode": "host"}
        if host_network
        else {"ports": [docker.published_port(job)]}
        if published
        else {},
        volumes=[
            _bind("${HF_HOME:-${HOME}/.cache/huggingface}", job.cache),
            *(_bind(compose(mount.path), mount.path, mount.writable) for mount in job.mounts),
        ],
        environment=environment(job),
        devices=_devices(job, gpu_ids),
        grace=math.ceil(settings.stop_timeout),
        ask=ask,
        ready=math.ceil(settings.ready_timeout),
    )


def _words(job: Job, flags: Sequence[Word] | None) -> list[Word]:
    entry = job.image.entry if job.image else LAUNCH_SERVER
    return [*job.start(["python3"], entry), *(job.flags(contained=True) if flags is None else flags)]


def in_command(job: Job, word: Word) -> str:
    if isinstance(word, Variable):
        return word.before + _asked(job, word) + compose(word.after)
    return Block(compose(word)) if "\n" in word else compose(word)


def _asked(job: Job, variable: Variable) -> str:
    """Returns a variable that the user must set, with the error message for an unset one."""
    own = job.plan.intent.get("node_rank")
    if variable == RANK and own is not None:
        return f"${{{variable.name}:-{own}}}"
    number = "0" if variable.name == HEAD.name else variable.name.removeprefix(NODE)
    why = f"the number of this node, from 0 to {job.nodes - 1}" if variable == RANK else f"the address of node {number}"
    return f"${{{variable.name}:?{why}}}"


def _image(job: Job) -> str:
    if job.image is not None:
        return compose(job.image.image)
    # Compose parses the message too, so it contains no braces or dollars.
    message = re.sub(r"[^\w .,:()=/-]", "", missing_image(job.plan).message)
    return f"${{{IMAGE_VARIABLE}:?{message}}}"


def _bind(source: str, path: str, writable: bool = True) -> dict[str, object]:
    both = {"type": "bind", "source": source, "target": compose(path)}
    return {**both, "bind": {"create_host_path": True}} if writable else {**both, "read_only": True}


def environment(job: Job) -> dict[str, str | None]:
    """Returns the variables: values as they are; secrets by name, so that Compose takes them from its environment."""
    found: dict[str, str | None] = {name: compose(value) for name, value in job.contained_environment().items()}
    for name in job.secret_names:
        needed = name == KEY_VARIABLE or name in job.plan.environment
        found[name] = f"${{{name}:?a secret, which is not written down here}}" if needed else None
    return found


def _devices(job: Job, gpu_ids: Sequence[int] | None) -> Mapping[str, object]:
    more: dict[str, object] = {}
    devices = ["/dev/infiniband"] if fabric.is_rdma(job.fabric) else []
    capabilities = ["IPC_LOCK"] if fabric.is_rdma(job.fabric) else []
    if job.gpus and job.plan.gpu.vendor == "amd":
        devices += ["/dev/kfd", "/dev/dri"]
        capabilities.append("SYS_PTRACE")
        more = {"group_add": ["video"], "security_opt": ["seccomp=unconfined"]}
    elif job.gpus:
        count = "all" if job.gpus == job.plan.gpu.count else job.gpus
        which = {"count": count} if gpu_ids is None else {"device_ids": [str(number) for number in gpu_ids]}
        wanted = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
        more = {"deploy": {"resources": {"reservations": {"devices": [wanted]}}}}
    if devices:
        more = {"devices": devices, **more}
    if capabilities:
        more = {"cap_add": capabilities, **more}
    return more
