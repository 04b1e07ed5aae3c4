"""``launch.slurm`` and ``launch.k8s``: the request for a Slurm job, and facts of the cluster for a manifest."""

# OmegaConf evaluates these annotations, so they must be real objects and not postponed strings.
from dataclasses import dataclass, field
from typing import Any


@dataclass(repr=False, eq=False)
class SlurmNode:
    """The keys, which ``sglang_hydra.show.key_help`` explains. Null leaves a setting to the cluster."""

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    walltime: str | None = None
    gpus: str = "gpus_per_node"
    gpu_type: str | None = None
    cpus: int | None = None
    mem: str | None = None
    exclusive: bool = False
    container: str = "none"
    mounts: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    sbatch: dict[str, Any] = field(default_factory=dict)
    srun: list[str] = field(default_factory=list)


@dataclass(repr=False, eq=False)
class K8sNode:
    """The keys, which ``sglang_hydra.show.key_help`` explains. ``cache_gib`` and ``memory_gib`` are in GiB."""

    rdma_resource: str = "rdma/rdma_shared_device_a"
    cache_gib: int | None = None
    memory_gib: int | None = None
    storage_class: str | None = None
    namespace: str | None = None
    node_selector: dict[str, str] | None = None
    security_context: dict[str, Any] = field(default_factory=lambda: {"allowPrivilegeEscalation": False})
