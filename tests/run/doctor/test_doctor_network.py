"""The RDMA devices of prefill and decode servers: machines of threads, each judged before it was tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sglang_hydra.run.doctor import examine, network
from sglang_hydra.run.doctor.machine_state import Examinee, RdmaPort, World
from tests.run.doctor.doctor_worlds import HEALTHY, LAPTOP, judge

IB = tuple(RdmaPort(f"mlx5_{number}") for number in range(8))
ROCE = tuple(RdmaPort(f"mlx5_bond_{number}", link="Ethernet", gids=(1, 3)) for number in range(1, 9))
MOONCAKE, NIXL = Examinee(transfer="mooncake"), Examinee(transfer="nixl")


def machine(request: Examinee, ports: tuple[RdmaPort, ...], peer_memory: bool = True, **env: str) -> World:
    return replace(HEALTHY, request=request, rdma=ports, peer_memory=peer_memory, env=env)


@pytest.mark.parametrize(
    ("world", "state", "words"),
    [
        # sgl-project/sglang#28737: NIXL hangs for 300 s until UCX_NET_DEVICES names a device; Mooncake finds its own
        (machine(NIXL, IB), "warning", ("UCX_NET_DEVICES names no device", "engine.env.UCX_NET_DEVICES=mlx5_0:1")),
        (machine(NIXL, IB, UCX_NET_DEVICES="mlx5_0:1"), "ok", ("nixl over mlx5_0",)),
        (machine(NIXL._replace(devices="mlx5_0"), IB), "ok", ()),
        (machine(MOONCAKE, IB), "ok", ("mooncake over mlx5_0, mlx5_1, mlx5_2 and 5 more",)),
        # sgl-project/sglang#30737: on a bonded RoCE port Mooncake's GID is NULL, and every transfer fails
        (machine(MOONCAKE, ROCE), "warning", ("MC_GID_INDEX is not set", "engine.env.MC_GID_INDEX=3")),
        (machine(MOONCAKE, ROCE, MC_GID_INDEX="3"), "ok", ()),
        (machine(MOONCAKE, ROCE, MC_GID_INDEX="0"), "error", ("MC_GID_INDEX=0 is no GID of RoCE v2",)),
        (machine(MOONCAKE, (ROCE[0], ROCE[1]._replace(gids=()))), "error", ("share no GID",)),
        # sgl-project/sglang#29127: one device of eight is down
        (machine(MOONCAKE, (*IB[:5], IB[5]._replace(active=False))), "warning", ("mlx5_5 has no active port",)),
        (
            machine(MOONCAKE._replace(devices="mlx5_5"), (*IB[:5], IB[5]._replace(active=False))),
            "error",
            ("mlx5_5 has no active port", "disaggregation_ib_device=mlx5_0,mlx5_1"),
        ),
        # sgl-project/sglang#4880: the name of another machine's device
        (machine(MOONCAKE._replace(devices="mlx5_bond_3"), IB), "error", ("mlx5_bond_3 is named", "mlx5_0, mlx5_1")),
        # sgl-project/sglang#10560: RDMA that cannot read GPU memory; kvcache-ai/Mooncake#1811: TCP on purpose
        (machine(MOONCAKE, IB, peer_memory=False), "warning", ("sudo modprobe nvidia_peermem",)),
        (machine(MOONCAKE, (), MC_FORCE_TCP="1"), "ok", ("over TCP",)),
        (machine(MOONCAKE, ()), "warning", ("no RDMA device", "engine.env.MC_FORCE_TCP=1")),
        (machine(MOONCAKE._replace(devices="mlx5_0"), ()), "error", ("this machine has no RDMA device",)),
        (replace(LAPTOP, request=MOONCAKE, rdma=IB), "ok", ()),
    ],
)
def test_a_network_is_judged_by_the_backend(world: World, state: str, words: tuple[str, ...]) -> None:
    judge(network.check_rdma, world, state, *words)


def test_ports_are_read_with_their_routable_gids(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    (port / "gid_attrs" / "types").mkdir(parents=True)
    (port / "gids").mkdir()
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text("Ethernet\n")
    gids = ("fe80::1", "::ffff:0a00:0001", "::ffff:0a00:0001", "0000:0000:0000:0000:0000:0000:0000:0000")
    for index, (gid, kind) in enumerate(zip(gids, ("RoCE v2", "IB/RoCE v1", "RoCE v2", "RoCE v2"), strict=True)):
        (port / "gids" / str(index)).write_text(f"{gid}\n")
        (port / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")
    assert network.rdma_ports(tmp_path) == (RdmaPort("mlx5_0", "1", True, "Ethernet", (2,)),)
    assert network.rdma_ports(tmp_path / "nowhere") == ()


def test_only_servers_that_send_a_cache_are_told_of_the_network() -> None:
    sending = {item.id for item in examine({}, Examinee(port=0, transfer="mooncake"))}
    assert sending - {item.id for item in examine({}, Examinee(port=0))} == {"DOC020"}
