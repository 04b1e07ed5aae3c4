"""Tiers of the KV cache outside GPU memory."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Cache:
    """Tiers of the KV cache outside GPU memory."""

    enable_hierarchical_cache: bool = arg(
        False, "Keep evicted KV cache in host memory; for many long prefixes that come back. Needs the radix cache."
    )
    hicache_ratio: float = arg(
        2.0, "Host KV cache of each rank as a multiple of its GPU KV cache; must be above 1.", unit="times"
    )
    hicache_size: int = arg(
        0, "Host KV cache of each rank, in place of hicache_ratio; 0 leaves it to that.", unit="GB (10^9 bytes)"
    )
    hicache_write_policy: str = arg(
        "write_through",
        "When pages go to the host: at first use (write_through), once used again (write_through_selective), or on "
        "eviction (write_back).",
        choices=("write_back", "write_through", "write_through_selective"),
    )
    hicache_io_backend: str = arg(
        "kernel",
        "How pages are copied between host and GPU: by a kernel or by direct copies.",
        choices=("direct", "kernel"),
    )
    hicache_mem_layout: str = arg(
        "layer_first",
        "Layout of the host cache; page_first suits storage backends, which move whole pages.",
        choices=("layer_first", "page_first"),
    )
    hicache_storage_backend: str | None = arg(
        None,
        "Third tier behind host memory, shared among servers; mooncake forces kernel copies and page_first.",
        none="no third tier",
        choices=("file", "mooncake", "hf3fs", "nixl"),
    )
    hicache_storage_prefetch_policy: str = arg(
        "best_effort",
        "How long a request waits for pages from storage: not at all, until complete, or up to a time limit.",
        choices=("best_effort", "wait_complete", "timeout"),
    )
    hicache_storage_backend_extra_config: str | None = arg(
        None, "JSON object of settings for the storage backend.", none="its defaults", json=True
    )
    enable_lmcache: bool = arg(False, "Use LMCache for the outer tiers, in place of the hierarchical cache.")
