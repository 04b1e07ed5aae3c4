"""``topology``: the servers of each role and the router in front of them, as one typed node."""

# OmegaConf evaluates these annotations, so they must be real objects and not postponed strings.
from dataclasses import dataclass, field
from typing import Any

SINGLE, REPLICAS, PD = "single", "replicas", "pd"
REPLICA, PREFILL, DECODE = "replica", "prefill", "decode"
ON_WORKER_EXIT = ("continue", "stop")


@dataclass(repr=False, eq=False)
class RoleNode:
    """The servers of one role: how many, on how many nodes of their own, and the arguments that differ from the common
    ones."""

    replicas: int = 1
    nodes: int | None = None
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(repr=False, eq=False)
class RouterNode:
    """The router's settings under its own names; null keeps the router's default. Times in seconds."""

    python: str | None = None
    host: str | None = None
    port: int | None = None
    policy: str | None = None
    prefill_policy: str | None = None
    decode_policy: str | None = None
    worker_startup_timeout_secs: int | None = None
    worker_startup_check_interval: int | None = None
    request_timeout_secs: int | None = None
    max_concurrent_requests: int | None = None
    prometheus_host: str = "127.0.0.1"
    prometheus_port: int | None = None
    log_level: str | None = None
    ready_timeout: float = 120.0
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(repr=False, eq=False)
class TopologyNode:
    """The servers of each role and the router; ``sglang_hydra.show.key_help`` explains each key."""

    name: str = SINGLE
    prefill: RoleNode = field(default_factory=RoleNode)
    decode: RoleNode = field(default_factory=RoleNode)
    nodes: int | None = None
    worker_host: str = "127.0.0.1"
    on_worker_exit: str = "continue"
    router: RouterNode = field(default_factory=RouterNode)
