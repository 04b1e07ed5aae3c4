"""A router that starts its own servers (``sglang_router.launch_server``), as ``topology=replicas``.

It takes SGLang's flags and, with ``router-`` before their names, its own. Each of its ``--dp-size`` servers gets the
next ``--tp-size`` GPUs and a port; ``--host`` and ``--port`` are the router's. That is what the topology plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sglang_hydra.compose.settings.topology import RouterNode
from sglang_hydra.planning.topology.router import SECRET, flags
from sglang_hydra.text.findings import Finding

PREFIX = "--router-"
REPLICAS = "dp_size"
"""The router's flag for the number of servers, each of which has one replica of the weights."""
_PLACED = ("host", "port", "worker_urls", "pd_disaggregation", "prefill", "decode")


def router_key(flag: str, values: Sequence[str]) -> tuple[str, Any] | Finding:
    """One of the router's flags as a key of ``topology.router`` with its value; a finding where it is left out."""
    name = flag.removeprefix(PREFIX).replace("-", "_")
    known = flags().get(name)
    if known is None or name in _PLACED or name in SECRET or not _fits(known.kind, values):
        why = "holds a secret" if name in SECRET else "is none of the router's that a topology takes"
        return Finding("error", "IMP003", f"{flag} {why}; it is left out")
    key = name if name in {field.name for field in fields(RouterNode)} else f"args.{name}"
    return f"topology.router.{key}", _value(known.kind, values)


def _fits(kind: str, values: Sequence[str]) -> bool:
    try:
        _value(kind, values)
    except ValueError:
        return False
    return True


def _value(kind: str, values: Sequence[str]) -> Any:
    """Converts words to a value of this kind. Raises ValueError where they are none."""
    if kind == "list":
        return list(values)
    if kind == "switch":
        if values:
            raise ValueError(values)
        return True
    (text,) = values
    return int(text) if kind == "int" else float(text) if kind == "float" else text
