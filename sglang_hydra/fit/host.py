"""Sizes a server's memory on its node's host: the hierarchical cache, offloaded weights, the processes.

Each rank has a pool of ``hicache_size`` times 10^9 bytes, else of ``hicache_ratio`` times the tokens on its GPU, and 10
GiB stay free beside it: SGLang 0.5.2 mem_cache/memory_pool_host.py:63-107, 0.5.23 mem_cache/pool_host/base.py:172-256;
where neither was set, later releases use the ratio that fits (0.5.23 mem_cache/hicache_auto_size.py:80-125). With a
size, the index keys of sparse attention are additional: 34.4 GB beside 150 GB for GLM-5.2 (sgl-project/sglang#29263).
Up to 0.5.6 torch pins a pool and rounds up to a power of two (pytorch/pytorch#150517): 40 GB on each of four ranks
filled 256 GB, and 30 GB did not (sgl-project/sglang#14282). From 0.5.7 on SGLang registers memory of the exact size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.tables.order import FIRST_NUMBERED, at_least, release_key
from sglang_hydra.fit.kv import INDEX
from sglang_hydra.fit.overheads import GIB
from sglang_hydra.text.json_types import JsonObject

if TYPE_CHECKING:
    from sglang_hydra.fit.result import KvCache

RESERVE_GIB = 10
"""The GiB that SGLang leaves free when it makes a pool in host memory."""
PROCESS_GIB = 18
"""The GiB of processes for each GPU: a server on one GPU held 17 GiB, and 18 are requested for it
(Tanguille/cluster#3650). The runtimes of sgl-project/ome@17b77ed request more, which small nodes lack: 30, 35, 40 and
64 GiB for each of 1, 2, 4 and 8 GPUs (medians of 109, 30, 34 and 20 runtimes)."""
SHARED_GIB = 32
"""Shared memory for NCCL and the processes of the server; SGLang's documentation gives a container 32 GiB."""
_REGISTERED_FROM = "0.5.7"


class HostMemory(NamedTuple):
    """The host memory of one node, in bytes. ``ranks`` counts its GPUs. ``cache`` is the hierarchical cache of all
    ranks (None: unknown); ``elastic``: the release makes it smaller where the node has less memory; ``rounded``: the
    release rounds each rank's pool up to a power of two."""

    ranks: int
    cache: float | None
    offloaded: float
    elastic: bool
    rounded: bool

    @property
    def pinned(self) -> float | None:
        """Returns the pinned bytes, which the node cannot reclaim; None if unknown."""
        return self.offloaded if self.elastic else None if self.cache is None else self.cache + self.offloaded

    @property
    def requested(self) -> float | None:
        """Returns the bytes that a container should request, or None."""
        return None if self.cache is None else self.cache + self.offloaded + self.ranks * PROCESS_GIB * GIB


def host_memory(
    values: JsonObject, given: Mapping[str, object], kv: KvCache | None, ranks: int, release: str
) -> HostMemory:
    """Sizes the host memory of one node with ``ranks`` GPUs. ``given`` holds the arguments that the user set."""
    offloaded = ranks * float(values.get("cpu_offload_gb") or 0) * GIB
    if not values.get("enable_hierarchical_cache"):
        return HostMemory(ranks, 0.0, offloaded, elastic=False, rounded=False)
    key = release_key(release)
    rounded = key is not None and key > FIRST_NUMBERED and not at_least(release, _REGISTERED_FROM)
    pool = _pool(values, kv)
    cache = None if pool is None else ranks * (_power_of_two(pool) if rounded else pool)
    is_set = given.get("hicache_ratio") is not None or bool(given.get("hicache_size"))
    elastic = values.get("hicache_host_memory_fraction") is not None and not is_set
    return HostMemory(ranks, cache, offloaded, elastic, rounded)


def _pool(values: JsonObject, kv: KvCache | None) -> float | None:
    """Returns the pool of one rank in bytes, or None if unknown."""
    if kv is None:
        return None
    if size := float(values.get("hicache_size") or 0):
        index = sum(kind.bytes_per_token for kind in kv.kinds if kind.kind == INDEX)
        return size * 1e9 * (1 + index / max(kv.bytes_per_token - index, 1))
    ratio = values.get("hicache_ratio")
    return None if kv.size is None or ratio is None else float(ratio) * (kv.size + kv.state)


def _power_of_two(size: float) -> float:
    return 2.0 ** math.ceil(math.log2(max(size, 1)))


def fitting_word(values: JsonObject, kv: KvCache, found: HostMemory, node_gib: float) -> str | None:
    """Returns the override with which the hierarchical cache fits into ``node_gib`` GiB of a node, or None."""
    pool, room = _pool(values, kv), ((node_gib - RESERVE_GIB) * GIB - found.offloaded) / found.ranks
    if not pool or room <= 0:
        return None
    share = (_power_of_two(room * 1.001) / 2 if found.rounded else room) / pool
    if values.get("hicache_size"):
        size = int(float(values["hicache_size"]) * share)
        return f"hicache_size={size}" if size >= 1 else None
    ratio = int(float(values["hicache_ratio"]) * share * 10) / 10
    return f"hicache_ratio={ratio}" if ratio > 0 else None
