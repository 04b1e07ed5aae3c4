"""Several nodes: what each is told, how they find the first, and what is refused before anything starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.passing import nodes
from sglang_hydra.planning.passing.nodes import Head, node_commands, node_intents
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch import head
from sglang_hydra.run.launch.head import free_port_block, own_address, with_head
from sglang_hydra.run.launch.launch_request import LaunchRequest
from sglang_hydra.show.plan import plan_screen
from sglang_hydra.text.errors import MachineError
from tests.plans import composer, planned, without_engines

TWO = ("gpu=h200", "model=deepseek_v3", "tp_size=16", "nnodes=2")


@pytest.fixture(autouse=True)
def no_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def screen(plan: Plan) -> str:
    return "\n".join("".join(content for content, _ in line) for line in plan_screen(plan))


def settled(*overrides: str) -> tuple[Plan, LaunchRequest]:
    asked = LaunchRequest(composer(), [Request(text, "typed") for text in (*TWO, *overrides)])
    return with_head(asked, planned(*TWO, *overrides)), asked


def test_every_node_is_told_the_same_but_its_rank() -> None:
    intents = node_intents({"tp_size": 16, "base_gpu_id": 2}, 3, "10.0.0.1:5000")
    assert [intent.pop("node_rank") for intent in intents] == [0, 1, 2]
    told = {"tp_size": 16, "base_gpu_id": 2, "nnodes": 3, "dist_init_addr": "10.0.0.1:5000"}
    assert intents == [told, told, told]


def test_one_node_is_told_what_was_asked_for() -> None:
    assert node_intents({"tp_size": 8}, 1, "10.0.0.1:5000") == [{"tp_size": 8}]


def test_an_address_that_was_given_is_everybodys() -> None:
    intents = node_intents({"dist_init_addr": "head:5000", "node_rank": 1}, 2, "10.0.0.1:6000")
    assert [intent["dist_init_addr"] for intent in intents] == ["head:5000", "head:5000"]
    assert [intent["node_rank"] for intent in intents] == [0, 1]


def test_the_commands_of_all_nodes_are_sglangs_own() -> None:
    made = planned(*TWO, "dist_init_addr=10.0.0.1:5000", "node_rank=1")
    commands = node_commands(made)
    read = [parse_argv(command[3:]) for command in commands]
    assert [values.get("node_rank", 0) for values in read] == [0, 1]
    assert all(values["dist_init_addr"] == "10.0.0.1:5000" and values["nnodes"] == 2 for values in read)
    assert len({values["random_seed"] for values in read}) == 1


def test_a_server_has_one_identity_on_all_its_nodes() -> None:
    addresses = ("10.0.0.1:5000", "10.0.0.2:6000")
    ids = {
        planned(*TWO, f"node_rank={rank}", f"dist_init_addr={address}").server_id
        for rank in (0, 1)
        for address in addresses
    }
    ids |= {planned(*TWO).server_id, planned(*TWO, "launch=slurm").server_id}
    assert len(ids) == 1


def test_the_screen_has_a_command_for_each_node() -> None:
    shown = screen(planned(*TWO))
    assert "Commands, one on each node\n  node 0 (head), this one\n" in shown
    assert "--dist-init-addr HEAD:PORT --nnodes 2 --node-rank 0\n  node 1\n" in shown
    assert "--nnodes 2 --node-rank 1\n  HEAD:PORT is an address of node 0 and a free port there" in shown

    shown = screen(planned(*TWO, "node_rank=1", "dist_init_addr=10.0.0.1:5000"))
    assert "  node 0 (head)\n" in shown
    assert "  node 1, this one\n" in shown
    assert "HEAD:PORT" not in shown

    shown = screen(planned(*TWO, "launch=slurm"))
    assert "this one" not in shown
    assert "HEAD:PORT is found inside the job" in shown


def test_of_many_nodes_two_are_shown() -> None:
    shown = screen(planned("gpu=h200", "gpu.count=1", "model=deepseek_v3", "tp_size=16", "nnodes=16"))
    assert "  nodes 2 to 15: the same, each with its own --node-rank\n" in shown
    assert shown.count("-m sglang.launch_server") == 2


# Overrides beside the two nodes, and the findings on nodes that they get.
FOUND = [
    ([], []),
    (["node_rank=1"], [("NOD006", "dist_init_addr")]),
    (["node_rank=1", "launch=slurm"], []),
    (["node_rank=1", "dist_init_addr=10.0.0.1:5000"], []),
    (["node_rank=2", "dist_init_addr=10.0.0.1:5000"], [("NOD001", "node_rank")]),
    (["dist_init_addr=10.0.0.1"], [("NOD004", "dist_init_addr")]),
    (["engine=transformers"], [("NOD005", "nnodes")]),
    (["engine.version=0.5.23", "node_rank=0", "dcp_size=3"], [("NOD009", "dcp_size")]),
    (["nnodes=3", "pp_size=2", "tp_size=6", "disable_overlap_schedule=true"], [("NOD002", "nnodes")]),
]


@pytest.mark.parametrize(("overrides", "found"), FOUND, ids=lambda value: str(value)[:60])
def test_what_nodes_cannot_do_is_found_before_anything_starts(
    overrides: list[str], found: list[tuple[str, str]]
) -> None:
    made = planned(*TWO, *overrides)
    assert [(item.id, item.fields[0]) for item in made.findings if item.id.startswith("NOD")] == found
    assert made.launchable is (found == [])


def test_the_head_takes_an_address_of_its_own_and_a_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "own_address", lambda: "10.1.2.3")
    made, asked = settled()
    host, _, port = made.values["dist_init_addr"].rpartition(":")
    assert host == "10.1.2.3"
    assert 20000 <= int(port) < 29000
    assert made.values["random_seed"] == planned(*TWO).values["random_seed"]
    assert made.origins["dist_init_addr"][-1].place == "this machine's address and a port that was free"
    assert f"--dist-init-addr {made.values['dist_init_addr']} --nnodes 2 --node-rank 1" in screen(made)
    assert any(request.text.startswith("dist_init_addr=") for request in asked.requests)


def test_an_ipv6_head_is_written_in_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "own_address", lambda: "fd00::7")
    assert settled()[0].values["dist_init_addr"].startswith("[fd00::7]:2")
    assert nodes.head_of({"dist_init_addr": "[fd00::7]:5000", "nnodes": 2}) == Head("fd00::7", 5000)


def test_a_port_of_the_head_that_is_taken_is_named(listening: int) -> None:
    with pytest.raises(MachineError) as caught:
        settled(f"dist_init_addr=127.0.0.1:{listening}")
    [finding] = caught.value.findings
    assert finding.id == "NOD007"
    assert f"dist_init_addr=127.0.0.1:{listening}: port {listening} is in use" in finding.message
    assert finding.hint is not None
    assert f"dist_init_addr=127.0.0.1:{listening + 1}" in finding.hint


def test_another_node_needs_a_head_that_can_be_reached(listening: int) -> None:
    reached, _ = settled("node_rank=1", f"dist_init_addr=127.0.0.1:{listening}")
    assert reached.values["node_rank"] == 1
    # Not yet listening: torch asks again until it does.
    assert settled("node_rank=1", f"dist_init_addr=127.0.0.1:{free_port_block(1)}")[0].launchable


@pytest.mark.parametrize(
    ("host", "failure"),
    [
        ("no-such-host.invalid", socket.gaierror(-2, "Name or service not known")),
        ("10.0.0.9", OSError(113, "No route to host")),
        ("10.0.0.9", TimeoutError("timed out")),
    ],
)
def test_a_head_that_cannot_be_reached_is_named_with_its_port(
    host: str, failure: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        assert address == (host, 5000)
        raise failure

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(MachineError) as caught:
        settled("node_rank=1", f"dist_init_addr={host}:5000")
    [finding] = caught.value.findings
    assert finding.id == "NOD008"
    assert f"host {host}, port 5000" in finding.message
    assert "dist_init_addr=HOST:PORT" in str(finding.hint)


def test_the_first_node_refuses_an_address_that_does_not_lead_to_it() -> None:
    port = free_port_block(1)
    with pytest.raises(MachineError) as caught:
        settled(f"dist_init_addr=198.51.100.7:{port}")
    [finding] = caught.value.findings
    assert finding.id == "NOD008"
    assert finding.message == (
        f"node 0 is this machine, and dist_init_addr=198.51.100.7:{port} does not lead to it: "
        "it is the address of another machine"
    )
    assert f"dist_init_addr={head.own_address()}:{port} on every node" in str(finding.hint)


def test_the_first_node_refuses_a_name_that_nobody_knows() -> None:
    with pytest.raises(MachineError, match=r"NOD008.*does not lead to it"):
        settled(f"dist_init_addr=no-such-host.invalid:{free_port_block(1)}")


def test_ports_in_a_row_are_free_and_out_of_the_servers_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        first = free_port_block(6, [25000])
        assert 20000 <= first < 29000
        assert not {*range(first, first + 6)} & {*range(25000, 26100)}
    monkeypatch.setattr(head, "is_free", lambda port: False)
    with pytest.raises(MachineError, match="NOD007: no 6 ports in a row are free"):
        free_port_block(6)


def test_dp_attention_needs_more_ports_of_the_head() -> None:
    assert planned(*TWO).layout.head_ports == 1
    with_dp = planned(*TWO, "dp_size=16", "enable_dp_attention=true")
    assert with_dp.layout.head_ports == 22


def test_a_machine_knows_its_address_or_says_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_address("127.0.0.1") == "127.0.0.1"

    def resolve(*arguments: object, **named: object) -> list[object]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert own_address() == "127.0.0.1"
