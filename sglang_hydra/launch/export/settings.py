"""``launch.k8s``: what a Kubernetes manifest needs to know of the cluster."""

# OmegaConf evaluates these annotations, so they are real objects and not postponed strings.
from dataclasses import dataclass


@dataclass
class K8sNode:
    """``rdma_resource`` is the name under which the cluster's device plugin offers RDMA (kubectl describe node);
    ``cache_gib`` the size of the volume for downloaded weights in GiB, null for the model's with room to spare;
    ``storage_class`` that volume's class, null for the cluster's default."""

    rdma_resource: str = "rdma/rdma_shared_device_a"
    cache_gib: int | None = None
    storage_class: str | None = None
