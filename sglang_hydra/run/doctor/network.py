"""Checks the RDMA devices over which prefill servers send the KV cache to decode servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sglang_hydra.run.doctor.examination import Checked, State, check, listed
from sglang_hydra.run.doctor.machine_state import RdmaPort, World

_GID = {"mooncake": "MC_GID_INDEX", "nixl": "UCX_IB_GID_INDEX"}
_WORST: Sequence[State] = ("error", "warning", "unknown")
Problem = tuple[State, str, str]


def rdma_ports(root: Path) -> tuple[RdmaPort, ...]:
    """Reads the ports of the RDMA devices below ``root`` (/sys/class/infiniband). Ignores what cannot be read."""
    return tuple(_port(path) for path in sorted(root.glob("*/ports/*")))


def _port(path: Path) -> RdmaPort:
    kinds = {int(file.name): _read(file) for file in (path / "gid_attrs" / "types").glob("*")}
    gids = {index: _read(path / "gids" / str(index)) for index, kind in kinds.items() if kind == "RoCE v2"}
    usable = sorted(index for index, gid in gids.items() if gid.strip("0:") and not gid.startswith("fe80"))
    active, link = "ACTIVE" in _read(path / "state"), _read(path / "link_layer")
    return RdmaPort(path.parents[1].name, path.name, active, link, tuple(usable))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


@check("DOC020", "RDMA for the KV cache")
def check_rdma(world: World) -> Checked:
    """
    What: for prefill and decode servers: the RDMA devices that the plan or the environment names, the state and GIDs of
        their ports, the variables of the transfer backend, and the module that lets the devices read GPU memory.
    Why: a KV cache that does not arrive ends each request after 300 s (KVPoll.WaitingForInput), or is sent over TCP.
    Source: 0.5.23 arg_groups/validation_hook.py:497-560, disaggregation/nixl/conn.py:564-577,
        distributed/device_communicators/mooncake_transfer_engine.py:131; sgl-project/sglang#28737 (UCX_NET_DEVICES),
        #30737 (MC_GID_INDEX), #29127; NVIDIA's guide to GPUDirect RDMA (nvidia_peermem).
    Example: disaggregation_transfer_backend=nixl without UCX_NET_DEVICES -> warning, export UCX_NET_DEVICES=mlx5_0:1
    """
    ports, values = world.rdma, {"devices": sorted({port.device for port in world.rdma})}
    backend, env = world.request.transfer, world.env
    if backend is None:
        return Checked("ok", "no KV cache is sent")
    details = tuple(
        f"{port.device} port {port.number}: {'active' if port.active else 'down'}, {port.link}"
        + (f", GIDs {', '.join(map(str, port.gids))}" if port.link == "Ethernet" else "")
        for port in ports
    )
    if backend == "mooncake" and env.get("MC_FORCE_TCP") == "1":
        return Checked("ok", "MC_FORCE_TCP=1: Mooncake sends it over TCP", details=details, values=values)
    problems = sorted(_problems(world, backend), key=lambda problem: _WORST.index(problem[0]))
    if not problems:
        return Checked("ok", f"{backend} over {listed(values['devices'])}", details=details, values=values)
    found = "; ".join(text for _, text, _ in problems)
    return Checked(problems[0][0], found, " and ".join(fix for *_, fix in problems), details, values)


def _problems(world: World, backend: str) -> Iterator[Problem]:
    env, ports = world.env, world.rdma
    typed = world.request.devices or ""
    chosen = env.get("UCX_NET_DEVICES", typed) if backend == "nixl" else typed
    names = [name.partition(":")[0].strip() for name in chosen.split(",") if name.strip()]
    missing = [name for name in names if name not in {port.device for port in ports}]
    if missing and "{" not in chosen and not chosen.endswith(".json"):
        here = listed(sorted({port.device for port in ports})) or "no RDMA device"
        yield "error", f"{listed(missing)} is named, and this machine has {here}", "disaggregation_ib_device=NAMES"
        return
    if not ports:
        tcp = "engine.env.MC_FORCE_TCP=1" if backend == "mooncake" else "doctor topology=pd on the node that has them"
        yield "warning", "this machine shows no RDMA device, and TCP is slow", tcp
        return
    used = [port for port in ports if port.device in names] or list(ports)
    active = [port for port in used if port.active]
    if down := sorted({port.device for port in used} - {port.device for port in active}):
        fix = f"disaggregation_ib_device={','.join(sorted({port.device for port in ports if port.active})) or 'null'}"
        yield "error" if names or not active else "warning", f"{listed(down)} has no active port", fix
    if backend == "nixl" and not names:
        first = (active or used)[0]
        fix = f"engine.env.UCX_NET_DEVICES={first.device}:{first.number}"
        yield "warning", "UCX_NET_DEVICES names no device for NIXL", fix
    yield from _gid_problems(env.get(_GID.get(backend, "")), _GID.get(backend), active)
    if world.visible and not world.peer_memory:
        yield "warning", "nvidia_peermem is not loaded: RDMA may not read GPU memory", "sudo modprobe nvidia_peermem"


def _gid_problems(typed: str | None, variable: str | None, ports: Sequence[RdmaPort]) -> Iterator[Problem]:
    """Yields wrong GID indices of RoCE ports, and the common one of bonded ports, where Mooncake finds none."""
    roce = [port for port in ports if port.link == "Ethernet"]
    if variable is None or not roce:
        return
    common = sorted(set.intersection(*(set(port.gids) for port in roce)))
    fix = f"engine.env.{variable}={common[-1]}" if common else "ask for an IP address on each of these ports"
    if not common:
        yield "error", f"{listed([port.device for port in roce])} share no GID of RoCE v2", fix
    elif typed is not None and (not typed.isdigit() or int(typed) not in common):
        yield "error", f"{variable}={typed} is no GID of RoCE v2 on each device; {common} are", fix
    elif typed is None and any("bond" in port.device for port in roce):
        yield "warning", f"{variable} is not set, and no GID may be found on a bond", fix
