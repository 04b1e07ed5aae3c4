"""The servers of an exported topology as the topology that the export was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sglang_hydra.arguments.fields import FIELDS

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
        roles.setdefault(str(server.get("disaggregation_mode", "")), own)
    first, *others = roles.values()
    shared = {
        key: value
        for key, value in first.items()
        if key not in FIELDS or all(key in other and other[key] == value for other in others)
    }
    args = {
        f"topology.{role}.args.{key}": value
        for role, own in roles.items()
        for key, value in own.items()
        if key in FIELDS and key not in shared
    }
    return {**shared, **args}
