"""The servers of an exported topology as the topology that the export was made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.settings.topology import REPLICA
from sglang_hydra.text.budget import read_documents

_GIVEN = (
    *("port", "host", "base_gpu_id", "nccl_port", "dist_init_addr", "node_rank"),
    *("disaggregation_mode", "disaggregation_bootstrap_port"),
    *("disaggregation_decode_tp", "disaggregation_decode_dp", "disaggregation_prefill_pp"),
)
"""What a topology gives its servers itself."""


def together(servers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of a topology: what all ``servers`` share, and what each role has for itself."""
    roles: dict[str, dict[str, Any]] = {}
    for server in servers:
        own = {key: value for key, value in server.items() if key not in _GIVEN}
        roles.setdefault(_role(server), own)
    first, *others = roles.values()
    shared = {
        key: value
        for key, value in first.items()
        if key not in EVERY or all(key in other and other[key] == value for other in others)
    }
    args = {
        f"topology.{role}.args.{key}": value
        for role, own in roles.items()
        for key, value in own.items()
        if key in EVERY and key not in shared
    }
    return {**shared, **args}


def counted(servers: Sequence[Mapping[str, Any]], content: str) -> dict[str, int]:
    """How many servers there are, by the key that says so: those that the file starts; in Kubernetes those of the sets,
    by the label ``role``."""
    counts = Counter(_count_of(_role(server)) for server in servers)
    try:
        documents = read_documents(content, "manifest") if "kind:" in content else []
        sets = [document for document in documents if document["kind"] in ("StatefulSet", "LeaderWorkerSet")]
        roles = [str(one["metadata"]["labels"]["role"]) for one in sets]
        return {
            **counts,
            **{_count_of(role): int(one["spec"]["replicas"]) for role, one in zip(roles, sets, strict=True)},
        }
    except (yaml.YAMLError, ValueError, KeyError, TypeError, RecursionError):
        return dict(counts)


def _role(server: Mapping[str, Any]) -> str:
    return str(server.get("disaggregation_mode", REPLICA))


def _count_of(role: str) -> str:
    return "replicas" if role == REPLICA else f"topology.{role}.replicas"
