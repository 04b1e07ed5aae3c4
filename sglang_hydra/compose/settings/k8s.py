"""``launch.k8s``: what a Kubernetes manifest needs to know of the cluster."""

# OmegaConf evaluates these annotations, so they are real objects and not postponed strings.
from dataclasses import dataclass, field
from typing import Any


@dataclass
class K8sNode:
    """The keys, which ``sglang_hydra.show.key_help`` explains. ``cache_gib`` and ``memory_gib`` are in GiB."""

    rdma_resource: str = "rdma/rdma_shared_device_a"
    cache_gib: int | None = None
    memory_gib: int | None = None
    storage_class: str | None = None
    namespace: str | None = None
    node_selector: dict[str, str] | None = None
    security_context: dict[str, Any] = field(default_factory=lambda: {"allowPrivilegeEscalation": False})
