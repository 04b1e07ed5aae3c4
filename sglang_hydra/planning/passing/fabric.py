"""Sets ``fabric``, the network between the nodes, as variables for NCCL (on AMD: RCCL) and Gloo."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import nearest

TCP, ROCE, IB = "tcp", "roce", "ib"
FABRICS: Mapping[str, str] = {
    TCP: "plain sockets, also where the nodes have InfiniBand",
    ROCE: "RDMA over Ethernet (RoCE v2)",
    IB: "InfiniBand",
}


def fabric_findings(fabric: str | None) -> list[Finding]:
    if fabric is None or fabric in FABRICS:
        return []
    message = f"fabric={fabric} is not one of {', '.join(FABRICS)}"
    hint = f"fabric={nearest(fabric, FABRICS) or TCP}; null leaves it to NCCL"
    return [Finding("error", "EXP001", message, ("fabric",), hint)]


def is_rdma(fabric: str | None) -> bool:
    return fabric in (ROCE, IB)


def variables(fabric: str | None, *, interface: str | None = None) -> dict[str, str]:
    """Returns the variables of the fabric for every rank; none for null, where the libraries detect it.

    ``interface`` is the network interface if known (``eth0`` in a pod with a network of its own). GID index 3 is RoCE
    v2 over IPv4 on the usual adapters; SGLang's documentation names it too (docs/platforms/amd_gpu.md)."""
    if fabric is None:
        return {}
    named = {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface} if interface else {}
    if fabric == TCP:
        return {"NCCL_IB_DISABLE": "1", **named}
    gid = {"NCCL_IB_GID_INDEX": "3"} if fabric == ROCE else {}
    return {"NCCL_IB_DISABLE": "0", **gid, **named}
