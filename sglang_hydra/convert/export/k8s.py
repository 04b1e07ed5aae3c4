"""Writes ``export k8s``: a Deployment (one node) or LeaderWorkerSet (several), a Service, a volume for weights."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sglang_hydra.compose.settings.launch import K8sNode
from sglang_hydra.convert.export.docker import driver_lines, require_container_vendor
from sglang_hydra.convert.export.images import LAUNCH_SERVER, missing_image
from sglang_hydra.convert.export.job import HEAD_PORT, Artifact, Job
from sglang_hydra.convert.export.manifest import manifest
from sglang_hydra.convert.export.quoting import Variable, Word, commented, kubernetes
from sglang_hydra.convert.export.variables import HUB_TOKEN, KEY_PROGRAM, KEY_WHY
from sglang_hydra.convert.made_for import made_for
from sglang_hydra.fit.host import PROCESS_GIB, SHARED_GIB, HostMemory
from sglang_hydra.planning.making.memory import node_memory
from sglang_hydra.planning.passing import fabric
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.yaml_text import Block, yaml_text

LEADER_ADDRESS, WORKER_INDEX = "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX"
"""LeaderWorkerSet sets them in every container of a group; the second one since its release 0.6."""
NEEDS_GROUPS = "Needs LeaderWorkerSet 0.6 or newer in the cluster"

_STARTUP_EACH_S = 10
"""Seconds between two requests to /health during startup, as in manifest.yaml."""
_GRACE_S = 30
DISK_GIB = 10
"""Disk of a node for compiled kernels and logs: a choice, not a measurement."""
PRODUCT = "nvidia.com/gpu.product"
# Names in Kubernetes: RFC 1123, and DOMAIN/NAME for resources of a device plugin.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_CHECKED: Sequence[tuple[str, Callable[[Any], object], str, str]] = (
    ("namespace", _LABEL.fullmatch, "is no name of a namespace", "null"),
    ("cache_gib", lambda size: size >= 1, "is no size in GiB", "800"),
    ("memory_gib", lambda size: size >= 1, "is no size in GiB", "512"),
    ("storage_class", _NAME.fullmatch, "is no name of a storage class", "null"),
    ("rdma_resource", _RESOURCE.fullmatch, "is no name of a resource", K8sNode().rdma_resource),
)
"""Settings of ``launch.k8s``: the check, the error, and what to type instead."""
_ROOM, _UNKNOWN_GIB, _STEP_GIB = 1.25, 500, 10
_POD_INTERFACE = "eth0"


def export(job: Job) -> Artifact:
    require_container_vendor(job)
    check_settings(job)
    pod = pod_of(job)
    several = job.nodes > 1
    leader, worker = ({**labels(job), "role": role} for role in ("leader", "worker"))
    if several:
        workload = leader_worker_set(job, pod, metadata(job), leader, worker)
    else:
        workload = manifest("deployment", metadata=metadata(job), labels=labels(job), pod=serving(job, pod))
    documents = [*claim(job, shared=several), workload, service(job)]
    text = commented(job.header("k8s", *_more(job))) + documents_text(job, documents)
    return Artifact(text, tuple(findings(job)))


def documents_text(job: Job, documents: Sequence[JsonObject]) -> str:
    """Returns the documents as YAML, each in the requested namespace."""
    namespace = _settings(job).namespace
    inside = {"namespace": namespace} if namespace else {}
    return yaml_text([{**each, "metadata": {**each["metadata"], **inside}} for each in documents])


def leader_worker_set(
    job: Job,
    pod: dict[str, object],
    metadata: Mapping[str, object],
    leader_labels: Mapping[str, str],
    worker_labels: Mapping[str, str],
    servers: int = 1,
) -> JsonDict:
    """Builds ``servers`` groups of pods, each with the nodes of one server."""
    named = {"metadata": metadata, "leader_labels": leader_labels, "worker_labels": worker_labels}
    pods = {"leader": serving(job, pod), "worker": pod}
    return manifest("leader_worker_set", servers=servers, nodes=job.nodes, **named, **pods)


def service(job: Job) -> JsonDict:
    selector = {**labels(job), **({"role": "leader"} if job.nodes > 1 else {})}
    return manifest("service", name=job.name, labels=labels(job), selector=selector, port=job.port)


def claim(job: Job, *, shared: bool) -> list[JsonDict]:
    """Builds the volume for downloaded weights, for one pod or ``shared`` by several; none for a local model."""
    if job.is_local_model:
        return []
    settings, access = _settings(job), "ReadWriteMany" if shared else "ReadWriteOnce"
    size: int = settings.cache_gib or _weights_gib(job)
    named = {"name": f"{job.name}-cache", "labels": labels(job), "storage_class": settings.storage_class or None}
    return [manifest("claim", **named, access=access, size=size)]


def pod_of(job: Job) -> JsonDict:
    cache = {"name": "cache", "persistentVolumeClaim": {"claimName": f"{job.name}-cache"}}
    volumes: list[JsonDict] = [] if job.is_local_model else [cache]
    mounts: list[JsonDict] = [] if job.is_local_model else [{"name": "cache", "mountPath": job.cache}]
    for number, mount in enumerate(job.mounts):
        kind = {"type": "DirectoryOrCreate"} if mount.writable else {}
        volumes.append({"name": f"files-{number}", "hostPath": {"path": mount.path, **kind}})
        mounts.append({"name": f"files-{number}", "mountPath": mount.path, "readOnly": not mount.writable})
    return manifest(
        "pod",
        grace=max(math.ceil(job.plan.nodes.launch.stop_timeout), _GRACE_S),
        network={"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if _is_rdma(job) else {},
        nodes=_nodes(job),
        image=job.image.image if job.image else None,  # check_settings refuses the second
        **_command(job),
        env=[*_literal_env(job), *secret_env(job)],
        port=job.port,
        resources=_resources(job),
        security=_security(job),
        mounts=mounts,
        shared=SHARED_GIB,
        volumes=volumes,
    )


def _nodes(job: Job) -> JsonDict:
    """Selects nodes of the plan's GPU class by the label of NVIDIA's GPU feature discovery; other vendors have no known
    label."""
    asked = _settings(job).node_selector
    if asked is not None:
        return {"nodeSelector": dict(asked)} if asked else {}
    is_labelled = job.gpus and job.plan.gpu.vendor == "nvidia"
    products = [re.sub(r"[^\w.-]+", "-", name) for name in job.plan.nodes.gpu.device_names] if is_labelled else []
    if len(products) < 2:
        return {"nodeSelector": {PRODUCT: products[0]}} if products else {}
    terms = [{"matchExpressions": [{"key": PRODUCT, "operator": "In", "values": products}]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def serving(job: Job, pod: JsonDict) -> JsonDict:
    """Adds probes to the pod that answers requests."""
    budget = math.ceil(job.plan.nodes.launch.ready_timeout / _STARTUP_EACH_S)
    [container] = pod["containers"]
    return {**pod, "containers": [{**container, **manifest("probes", port=job.port, budget=max(budget, 1))}]}


def _command(job: Job) -> dict[str, list[str]]:
    entry = job.image.entry if job.image else LAUNCH_SERVER
    meeting = Variable(LEADER_ADDRESS, f":{job.head_port or HEAD_PORT}")
    flags = job.flags(contained=True, meeting=meeting, rank=Variable(WORKER_INDEX))
    return {
        "command": [kubernetes_text(word) for word in job.start(["python3"], entry)],
        "args": [kubernetes_text(word) for word in flags],
    }


def kubernetes_text(word: Word) -> str:
    return Block(kubernetes(word)) if word == KEY_PROGRAM else kubernetes(word)


def _literal_env(job: Job) -> list[dict[str, str]]:
    several = job.nodes > 1
    interface = None if _is_rdma(job) or not several else _POD_INTERFACE
    # A local model needs no download, so it has no volume.
    wanted = job.environment if job.is_local_model else job.contained_environment
    found = wanted(interface=interface)
    return [{"name": name, "value": kubernetes(value)} for name, value in found.items()]


def secret_env(job: Job) -> list[dict[str, object]]:
    """Reads each secret from this server's one Secret; only the hub's token may be missing there."""
    return [{"name": name, "valueFrom": {"secretKeyRef": _secret_key(job, name)}} for name in job.secret_names]


def _secret_key(job: Job, name: str) -> dict[str, object]:
    optional = {"optional": True} if name == HUB_TOKEN and name not in job.plan.environment else {}
    return {"name": job.name, "key": name, **optional}


def _resources(job: Job) -> dict[str, object]:
    limits: dict[str, object] = {}
    if job.gpus:
        limits["amd.com/gpu" if job.plan.gpu.vendor == "amd" else "nvidia.com/gpu"] = job.gpus
    if _is_rdma(job):
        limits[_settings(job).rdma_resource] = 1
    host = _node_memory(job)
    planned = None if host is None or host.requested is None else math.ceil(host.requested / 2**30)
    memory = _settings(job).memory_gib or planned
    requests = {"memory": f"{memory}Gi", "ephemeral-storage": f"{DISK_GIB}Gi"} if memory else {}
    return {name: found for name, found in (("limits", limits), ("requests", requests)) if found}


def _node_memory(job: Job) -> HostMemory | None:
    return node_memory(job.plan.resolution, job.plan.fit) if job.plan.fit and job.gpus else None


def memory_line(job: Job) -> list[str]:
    """Explains the memory that a pod requests."""
    host = _node_memory(job)
    if host is None or host.requested is None or _settings(job).memory_gib is not None:
        return []
    more = [
        f"{math.ceil(size / 2**30):,} GiB of {what}"
        for size, what in ((host.cache, "hierarchical cache"), (host.offloaded, "offloaded weights"))
        if size
    ]
    terms = [f"{host.ranks} x {PROCESS_GIB} GiB for the processes", *more]
    return [f"Memory of a pod: {', '.join(terms)}; launch.k8s.memory_gib names another size."]


def _security(job: Job) -> dict[str, object]:
    added = ["IPC_LOCK"] if _is_rdma(job) else []
    amd = bool(job.gpus) and job.plan.gpu.vendor == "amd"
    if amd:
        added.append("SYS_PTRACE")
    context: dict[str, object] = {"capabilities": {"add": added}} if added else {}
    if amd:
        context["seccompProfile"] = {"type": "Unconfined"}
    context |= _settings(job).security_context
    return {"securityContext": context} if context else {}


def metadata(job: Job) -> JsonDict:
    made = {"plan": job.plan.server_id, "version": job.plan.engine.version, "made_for": made_for(job.plan)}
    return manifest("metadata", name=job.name, labels=labels(job), **made)


def labels(job: Job) -> dict[str, str]:
    return {"app.kubernetes.io/name": "sglang", "app.kubernetes.io/instance": job.name}


def _weights_gib(job: Job) -> int:
    """Returns the size of the checkpoint in GiB, plus temporary files of the download."""
    plan = job.plan
    stages = plan.fit.weights.stages if plan.fit is not None else ()
    if not stages:
        return _UNKNOWN_GIB
    whole = sum(stages) * int(plan.values["tp_size"]) / 2**30
    return max(math.ceil(whole * _ROOM / _STEP_GIB), 1) * _STEP_GIB


def _is_rdma(job: Job) -> bool:
    return fabric.is_rdma(job.fabric)


def nodes_line(job: Job) -> list[str]:
    """Explains the label that selects nodes of the GPU class."""
    if _settings(job).node_selector is not None or not _nodes(job):
        return []
    return [f"Nodes are chosen by {PRODUCT} of NVIDIA's GPU feature discovery; launch.k8s.node_selector names others."]


def secret_line(job: Job) -> str:
    """Explains how to make the Secret for the pods."""
    keys = [name for name in job.secret_names if "optional" not in _secret_key(job, name)]
    named = (*keys, *[HUB_TOKEN] * (HUB_TOKEN not in keys))
    literal = " ".join(f"--from-literal={name}=..." for name in named)
    where = f"-n {namespace} " if (namespace := _settings(job).namespace) else ""
    made = f"kubectl create secret generic {where}{job.name} {literal}"
    return f"{'Needs' if keys else 'Gated models need'} a Secret: {made}"


def _more(job: Job) -> list[str]:
    lines = ["", "In its pod the server listens on every address (0.0.0.0); the Service of the same name leads to it."]
    lines += [*driver_lines(job.image), *nodes_line(job), *memory_line(job), secret_line(job)]
    if job.nodes > 1:
        shared = "" if job.is_local_model else ", and a storage class that several nodes can write to"
        lines.append(f"{NEEDS_GROUPS}{shared}.")
    return [*lines, *(KEY_WHY if job.has_key else ())]


def findings(job: Job, *, alone: bool = True) -> list[Finding]:
    found = job.container_findings(alone=alone)
    if job.mounts:
        paths = ", ".join(mount.path for mount in job.mounts)
        message = f"{paths}: taken from the node itself (hostPath), so it must be there on every node"
        found.append(Finding("warning", "EXP014", message, ("model_path",), "model_path=org/name is fetched instead"))
    return found


def check_settings(job: Job) -> None:
    """Raises ConfigError for settings (EXP015) and paths (EXP023) that Kubernetes would refuse."""
    settings = _settings(job)
    found = [replace(missing_image(job.plan), level="error")] if job.image is None else []
    for name, fits, why, instead in _CHECKED:
        value, key = getattr(settings, name), f"launch.k8s.{name}"
        if value is not None and not fits(value):
            found.append(Finding("error", "EXP015", f"{key}={value} {why}", (key,), f"{key}={instead}"))
    for mount in job.mounts:
        if ":" in mount.path:
            message = f"{mount.path}: Kubernetes mounts no path with a colon in it"
            found.append(Finding("error", "EXP023", message, ("model_path",), "give the folder another name"))
    if found:
        raise ConfigError(*found)


def _settings(job: Job) -> K8sNode:
    return job.plan.nodes.launch.k8s
