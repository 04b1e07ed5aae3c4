"""Weights kept outside GPU memory and fetched when needed."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Offload:
    """Weights kept outside GPU memory and fetched when needed."""

    cpu_offload_gb: int = arg(
        0, "Weights of each GPU kept in host memory; a slow way to fit a model that is a little too large.", unit="GiB"
    )
    offload_group_size: int = arg(
        -1, "Consecutive layers that form a group, of which the last ones are offloaded; -1 for none.", unit="layers"
    )
    offload_num_in_group: int = arg(1, "Layers offloaded in each group.", unit="layers")
    offload_prefetch_step: int = arg(1, "Offloaded layers that are fetched ahead.", unit="layers")
    offload_mode: str = arg(
        "cpu", "Where offloaded layers live: cpu, shm_cpu (one copy for all replicas), sharded_gpu or meta (dropped)."
    )
