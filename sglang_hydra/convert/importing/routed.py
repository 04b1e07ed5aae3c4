"""A router that starts its own servers (``sglang_router.launch_server``), as ``topology=replicas``.

It takes SGLang's flags and, with ``router-`` before their names, its own. Each of its ``--dp-size`` servers gets the
next ``--tp-size`` GPUs and a port; ``--host`` and ``--port`` are the router's. That is what the topology plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sglang_hydra.compose.settings.topology import RouterNode
from sglang_hydra.planning.topology.router import SECRET, flags
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.convert.importing.flags import Arguments

PREFIX = "--router-"
_REPLICAS = "dp_size"
_PLACED = ("host", "port", "worker_urls", "pd_disaggregation", "prefill", "decode")


def take_router(made: Arguments, flag: str, values: Sequence[str]) -> None:
    """Takes one of the router's flags as a key of ``topology.router``."""
    name = flag.removeprefix(PREFIX).replace("-", "_")
    known = flags().get(name)
    if known is None or name in _PLACED or name in SECRET or not _fits(known.kind, values):
        why = "holds a secret" if name in SECRET else "is none of the router's that a topology takes"
        made.findings.append(Finding("error", "IMP003", f"{flag} {why}; it is left out"))
        made.unread.append(flag)
        return
    key = name if name in {field.name for field in fields(RouterNode)} else f"args.{name}"
    made.topology[f"topology.router.{key}"] = _value(known.kind, values)


def take_replicas(made: Arguments) -> None:
    """Takes ``dp_size`` as the number of servers, each of which has one replica of the weights."""
    made.topology["replicas"] = made.values.pop(_REPLICAS, 1)


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
