"""Writes ``export docker``: a bash script that runs the server, or one rank per host, in a container."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sglang_hydra.convert.export.images import LAUNCH_SERVER, Image, missing_image
from sglang_hydra.convert.export.job import Artifact, Job, Mount
from sglang_hydra.convert.export.quoting import Variable, bash, bash_lines, commented
from sglang_hydra.convert.export.shell import asked_nodes, each_node, key_program, required_secrets
from sglang_hydra.fit.host import SHARED_GIB
from sglang_hydra.planning.passing import fabric
from sglang_hydra.planning.passing.passed import IMAGE_VARIABLE
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding


def export(job: Job) -> Artifact:
    require_container_vendor(job)
    more = ["", *listening_lines(job, published_port(job)), *driver_lines(job.image), *each_node(job)]
    options = "".join(f"  {option} \\\n" for option in _options(job))
    start = job.start(["python3"], job.image.entry if job.image else LAUNCH_SERVER)
    # The long program is defined above, as a variable.
    shown = [Variable("program") if word == start[-1] and job.has_key else word for word in start]
    parts = [
        "#!/usr/bin/env bash\n",
        commented(job.header("docker", *more)),
        "set -euo pipefail\n",
        asked_nodes(job),
        "\n",
        required_secrets(job),
        _image(job),
        "cache=${HF_HOME:-$HOME/.cache/huggingface}\n",
        # Docker mounts only existing folders.
        "mkdir -p " + " ".join(['"$cache"', *(bash(mount.path) for mount in job.mounts if mount.writable)]) + "\n",
        key_program(job),
        "\nexec docker run \\\n",
        options,
        f'  "$image" \\\n  {" ".join(map(bash, shown))} \\\n',
        bash_lines(job.flags(contained=True), "    ") + "\n",
    ]
    return Artifact("".join(parts), tuple(job.container_findings()), executable=True)


def _options(job: Job) -> Iterator[str]:
    settings = job.plan.nodes.launch
    yield f"--rm --init --name {job.name}"
    yield f"--stop-timeout {math.ceil(settings.stop_timeout)}"
    yield from _devices(job)
    yield f"--ipc=host --shm-size={SHARED_GIB}g --ulimit memlock=-1 --ulimit stack=67108864"
    if needs_host_network(job):
        yield "--network=host"
    else:
        yield f"--publish {published_port(job)}"
    if fabric.is_rdma(job.fabric):
        yield "--device=/dev/infiniband --cap-add=IPC_LOCK"
    yield f'--volume "$cache":{bash(job.cache)}'
    for mount in job.mounts:
        yield f"--mount {bash(mount_option(mount))}"
    for name in job.secret_names:
        yield f"--env {name}"
    for name, value in job.contained_environment().items():
        yield f"--env {bash(f'{name}={value}')}"


def _devices(job: Job) -> Iterator[str]:
    if not job.gpus:
        return
    if job.plan.gpu.vendor == "amd":
        yield "--device=/dev/kfd --device=/dev/dri --group-add=video"
        yield "--cap-add=SYS_PTRACE --security-opt seccomp=unconfined"
    else:
        yield f"--gpus {'all' if job.gpus == job.plan.gpu.count else job.gpus}"


def needs_host_network(job: Job) -> bool:
    """Returns whether containers need the host's network: ranks on several hosts connect by random ports, and RDMA
    needs the host's devices."""
    return job.nodes > 1 or fabric.is_rdma(job.fabric)


def mount_option(mount: Mount) -> str:
    """Returns the value of --mount, which docker reads as a line of CSV."""
    fields = ["type=bind", f"source={mount.path}", f"target={mount.path}", *["readonly"] * (not mount.writable)]
    return ",".join('"' + field.replace('"', '""') + '"' if set(field) & set('",\r\n') else field for field in fields)


def published_port(job: Job) -> str:
    """Returns the published port: on the host address where the plan's server would listen."""
    return f"{job.port}:{job.port}" if job.is_public else f"127.0.0.1:{job.port}:{job.port}"


def _image(job: Job) -> str:
    if job.image is not None:
        return f"image={bash(job.image.image)}\n"
    message = bash(f"{missing_image(job.plan).message}; {IMAGE_VARIABLE} must name one")
    return f'image=${{{IMAGE_VARIABLE}:-}}\nif [ -z "$image" ]; then\n  echo {message} >&2\n  exit 2\nfi\n'


_VENDORS = ("nvidia", "amd")


def require_container_vendor(job: Job) -> None:
    """Raises ConfigError (EXP010) for GPUs of a vendor whose use in containers is unknown here."""
    vendor = job.plan.gpu.vendor
    if job.gpus and vendor not in _VENDORS:
        message = f"how a container gets the accelerators of {vendor} is unknown here; known are {', '.join(_VENDORS)}"
        hint = "export shell or slurm, which need no container"
        raise ConfigError(Finding("error", "EXP010", message, ("gpu",), hint))


def listening_lines(job: Job, published: str) -> list[str]:
    """Explains that the server listens on every address inside the container, and how to reach it from outside."""
    lines = ["Inside the container the server listens on every address (0.0.0.0)."]
    if job.nodes > 1:
        return [*lines, "The containers use the network of their hosts: who can reach a host reaches the server."]
    if not job.is_public:
        lines.append(f"It is published on {published.rpartition(':')[0]} of the host alone; host=0.0.0.0 opens it.")
    return lines


def driver_lines(image: Image | None) -> list[str]:
    """Explains the image's content, and the driver that its host needs."""
    if image is None or image.toolkit is None:
        return []
    needs = f"; the host needs driver {image.driver} or newer" if image.driver else ""
    return [f"The image holds {image.toolkit}{needs}. Source: {image.source}."]
