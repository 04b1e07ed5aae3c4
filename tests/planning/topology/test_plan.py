"""Topologies as they are planned: which GPUs and ports each server gets, who set what, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sglang_hydra.facts import probe
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.planning.topology import router
from sglang_hydra.planning.topology.plan import plan_topology
from sglang_hydra.planning.topology.servers import Topology
from sglang_hydra.schemas import schema_of
from sglang_hydra.text.errors import ConfigError
from tests.plans import SEED, composer, planned, requests, without_accelerator, without_engines, written

H200 = ("gpu=h200", "model=qwen3_8b")
FOUR = (*H200, "topology=replicas", "replicas=4", "tp_size=2")
PD = (*H200, "topology=pd")


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)
    monkeypatch.setattr(router, "find_router", lambda python, engine_python: (python, None))


def topology(*overrides: str) -> Topology:
    return plan_topology(composer(), requests(*overrides), seed=SEED, env={})


def refusals(*overrides: str) -> list[tuple[str, str]]:
    """Id and message of what is wrong with a topology that cannot be planned."""
    with pytest.raises(ConfigError) as refused:
        topology(*overrides)
    return [(finding.id, finding.message) for finding in refused.value.findings]


def said(made: Topology) -> list[tuple[str, str]]:
    return [(finding.id, finding.level) for finding in made.together if finding.level != "info"]


# Where each server stands


@pytest.mark.parametrize(
    ("overrides", "gpus"),
    [
        (["replicas=4", "tp_size=2"], [(0, 1), (2, 3), (4, 5), (6, 7)]),
        (["replicas=2", "tp_size=4", "gpu_id_step=2"], [(0, 2, 4, 6), (1, 3, 5, 7)]),
        (["replicas=2", "tp_size=2", "gpu_id_step=3"], [(0, 3), (1, 4)]),
        (["replicas=2", "tp_size=2", "base_gpu_id=4"], [(4, 5), (6, 7)]),
        (["replicas=2", "tp_size=2", "dp_size=2"], [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (["replicas=2", "tp_size=4", "dp_size=4", "enable_dp_attention=true"], [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (["replicas=2", "tp_size=2", "pp_size=2", "disable_overlap_schedule=true"], [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (["replicas=3"], [(0,), (1,), (2,)]),
    ],
)
def test_replicas_get_gpus_of_their_own(overrides: list[str], gpus: list[tuple[int, ...]]) -> None:
    made = topology(*H200, "topology=replicas", *overrides)
    assert [server.gpus for server in made.servers] == gpus
    assert [server.plan.values["base_gpu_id"] for server in made.servers] == [numbers[0] for numbers in gpus]
    assert said(made) == []
    assert made.launchable


@pytest.mark.parametrize(
    ("overrides", "nodes", "gpus"),
    [
        # One node where all fit, unless somebody asks for more.
        (["topology=pd", "launch=slurm"], [(0,), (0,)], [(0,), (1,)]),
        (["topology=pd", "topology.decode.nodes=1"], [(0,), (1,)], [(0,), (0,)]),
        (["topology=pd", "tp_size=8", "launch=slurm"], [(0,), (1,)], [tuple(range(8))] * 2),
        # Servers take turns on the nodes of their role.
        (
            ["topology=pd", "topology.prefill.replicas=3", "topology.prefill.nodes=2", "tp_size=2"],
            [(0,), (1,), (0,), (2,)],
            [(0, 1), (0, 1), (2, 3), (0, 1)],
        ),
        (["topology=replicas", "replicas=4", "topology.nodes=2"], [(0,), (1,), (0,), (1,)], [(0,), (0,), (1,), (1,)]),
        (["topology=replicas", "replicas=3", "tp_size=4", "launch=slurm"], [(0,), (1,), (0,)], None),
        # A server on several nodes has them one after the other.
        (
            ["topology=pd", "topology.decode.args.nnodes=2", "topology.decode.args.tp_size=16", "tp_size=8"],
            [(0,), (1, 2)],
            [tuple(range(8))] * 2,
        ),
        (["topology=replicas", "replicas=2", "nnodes=2", "tp_size=2"], [(0, 1), (2, 3)], [(0,), (0,)]),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else None,
)
def test_servers_are_placed_on_nodes(
    overrides: list[str], nodes: list[tuple[int, ...]], gpus: list[tuple[int, ...]] | None
) -> None:
    made = topology("gpu=h200", "model=qwen3_8b", *overrides)
    assert [server.nodes for server in made.servers] == nodes
    assert made.nodes == max(max(own) for own in nodes) + 1
    if gpus is not None:
        assert [server.gpus for server in made.servers] == gpus
    assert "TOP004" not in {finding.id for finding in made.together}
    assert _all_ports(made) == sorted(set(_all_ports(made)))
    several = made.nodes > 1
    assert {server.plan.values["host"] for server in made.servers} == {"0.0.0.0" if several else "127.0.0.1"}
    urls = [server.url.rpartition(":")[0] for server in made.servers]
    assert urls == [f"http://NODE{own[0]}" if several else "http://127.0.0.1" for own in nodes]


def test_servers_on_a_cpu_take_no_gpu() -> None:
    made = topology("gpu=cpu", "model=tiny", "topology=replicas", "replicas=3")
    assert [server.gpus for server in made.servers] == [(), (), ()]
    assert all("base_gpu_id" not in server.plan.intent for server in made.servers)


@pytest.mark.parametrize(
    ("overrides", "http", "first_uses"),
    [
        ([], [30001, 30002, 30003, 30004], ["HTTP 30001", "NCCL 30101"]),
        (["port=8000"], [8001, 8002, 8003, 8004], ["HTTP 8001", "NCCL 8101"]),
        (["topology.router.port=9000"], [9001, 9002, 9003, 9004], ["HTTP 9001", "NCCL 9101"]),
        (["nccl_port=30002"], [30001, 30003, 30005, 30007], ["HTTP 30001", "NCCL 30002"]),
        (["port=30100"], [30101, 30102, 30103, 30104], ["HTTP 30101", "NCCL 30201"]),
    ],
)
def test_replicas_get_ports_of_their_own(overrides: list[str], http: list[int], first_uses: list[str]) -> None:
    made = topology(*FOUR, *overrides)
    assert [server.plan.values["port"] for server in made.servers] == http
    assert [use.shown for use in made.servers[0].ports] == first_uses
    assert _all_ports(made) == sorted(set(_all_ports(made)))
    assert made.router.port not in _all_ports(made)


def test_the_ports_that_dp_attention_derives_do_not_meet() -> None:
    made = topology(*H200, "topology=replicas", "replicas=4", "tp_size=2", "dp_size=2", "enable_dp_attention=true")
    assert [use.shown for use in made.servers[0].ports] == ["HTTP 30001", "NCCL 30101", "ZeroMQ 30235-30241"]
    assert _all_ports(made) == sorted(set(_all_ports(made)))
    assert made.launchable


def test_where_sglang_draws_nccl_ports_they_are_drawn_from_apart() -> None:
    # A fixed one would be taken by each of the data parallel ranks.
    made = topology(*H200, "topology=replicas", "replicas=2", "dp_size=2")
    assert all("nccl_port" not in server.plan.intent for server in made.servers)
    assert [use.shown for use in made.servers[1].ports] == ["HTTP 31002", "NCCL 31102-32002"]
    assert _all_ports(made) == sorted(set(_all_ports(made)))


def test_ports_that_are_in_use_are_passed_over() -> None:
    busy = {30001, 30103, 29000}
    made = plan_topology(composer(), requests(*FOUR), seed=SEED, env={}, is_free=lambda port: port not in busy)
    assert [server.plan.values["port"] for server in made.servers] == [30002, 30003, 30004, 30005]
    assert [server.plan.values["nccl_port"] for server in made.servers] == [30102, 30104, 30105, 30106]
    assert made.router.prometheus_port == 29001


@pytest.mark.thorough
@settings(max_examples=20, deadline=None)
@given(
    replicas=st.integers(1, 5),
    tp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 4]),
    attention=st.booleans(),
    step=st.integers(1, 3),
    port=st.integers(1024, 50000),
)
def test_no_gpu_and_no_port_is_ever_given_twice(
    replicas: int, tp: int, dp: int, attention: bool, step: int, port: int
) -> None:
    made = topology(
        *H200,
        *("topology=replicas", f"replicas={replicas}", f"tp_size={tp}", f"dp_size={dp}", f"gpu_id_step={step}"),
        *("gpu.count=64", f"port={port}", f"enable_dp_attention={str(attention and tp % dp == 0).lower()}"),
    )
    gpus = [gpu for server in made.servers for gpu in server.gpus]
    assert len(gpus) == len(set(gpus))
    assert _all_ports(made) == sorted({*_all_ports(made)} - {made.router.port, made.router.prometheus_port})
    assert not {"TOP005", "TOP006"} & {finding.id for finding in made.together}


def _all_ports(made: Topology) -> list[int]:
    return sorted(port for server in made.servers for use in server.ports for port in use.ports)


# Who set what


def test_replicas_are_the_same_server_and_say_who_placed_them() -> None:
    made = topology(*FOUR, "host=0.0.0.0")
    assert len({server.plan.server_id for server in made.servers}) == 1
    assert made.servers[0].plan.server_id == planned(*H200, "tp_size=2").server_id
    plan = made.servers[3].plan
    assert [(origin.layer, origin.place) for origin in plan.origins["base_gpu_id"]] == [
        ("topology", "topology=replicas, replica 3")
    ]
    assert [(origin.layer, origin.value) for origin in plan.origins["host"]] == [
        ("cli", "0.0.0.0"),
        ("topology", "127.0.0.1"),
    ]
    assert (made.router.host, made.router.port) == ("0.0.0.0", 30000)
    assert made.servers[3].url == "http://127.0.0.1:30004"


def test_a_seed_that_is_drawn_is_drawn_for_all() -> None:
    made = plan_topology(composer(), requests(*FOUR), env={})
    assert len({server.plan.values["random_seed"] for server in made.servers}) == 1
    assert all(server.plan.seed_drawn for server in made.servers)


def test_prefill_and_decode_servers_have_the_arguments_of_their_role() -> None:
    made = topology(
        *PD,
        *("topology.prefill.replicas=2", "topology.prefill.args.tp_size=2"),
        *("topology.decode.args.tp_size=4", "topology.decode.args.mem_fraction_static=0.8", "context_length=8192"),
    )
    values = [server.plan.values for server in made.servers]
    assert [server.name for server in made.servers] == ["prefill 0", "prefill 1", "decode 0"]
    assert [one["disaggregation_mode"] for one in values] == ["prefill", "prefill", "decode"]
    assert [one["tp_size"] for one in values] == [2, 2, 4]
    assert [one["context_length"] for one in values] == [8192] * 3
    assert [one["disaggregation_bootstrap_port"] for one in values[:2]] == [8998, 8999]
    assert [one["disaggregation_decode_tp"] for one in values] == [4, 4, None]
    assert [server.gpus for server in made.servers] == [(0, 1), (2, 3), (4, 5, 6, 7)]
    assert values[2]["mem_fraction_static"] == 0.8
    assert values[0]["mem_fraction_static"] != 0.8
    decode = made.servers[2].plan
    assert [(origin.layer, origin.place) for origin in decode.origins["tp_size"]] == [("cli", "argument 6")]
    assert decode.origins["disaggregation_mode"][-1].place == "topology=pd, decode"
    assert made.launchable


def test_a_topology_on_other_ports_and_gpus_is_the_same() -> None:
    elsewhere = topology(*PD, "port=9000", "base_gpu_id=4", "host=0.0.0.0", "topology.router.log_level=debug")
    assert elsewhere.topology_id == topology(*PD).topology_id
    assert topology(*PD, "topology.router.policy=random").topology_id != topology(*PD).topology_id


def test_a_role_beats_what_all_servers_have_and_the_chain_tells() -> None:
    made = topology(*PD, "tp_size=2", "topology.decode.args.tp_size=4")
    assert [server.plan.values["tp_size"] for server in made.servers] == [2, 4]
    chain = made.servers[1].plan.origins["tp_size"]
    assert [(origin.value, origin.place) for origin in chain] == [(2, "argument 4"), (4, "argument 5")]


def test_arguments_of_a_role_can_stand_in_a_file_of_the_group(tmp_path: Path) -> None:
    file = "defaults: [pd]\nprefill: {args: {tp_size: 2}}\nrouter: {args: {retry_max_retries: 2}}\n"
    folder = written(tmp_path, {"topology/lab.yaml": file})
    from sglang_hydra.compose.composer import Composer

    made = plan_topology(Composer([folder]), requests(*H200, "topology=lab"), seed=SEED, env={})
    assert [server.plan.values["tp_size"] for server in made.servers] == [2, 1]
    assert made.servers[0].plan.origins["tp_size"][-1].place == "topology=lab"


def test_what_servers_number_from_can_be_chosen_for_a_role() -> None:
    made = topology(
        *PD,
        *("topology.prefill.replicas=2", "topology.prefill.args.disaggregation_bootstrap_port=9500"),
        *("topology.prefill.args.base_gpu_id=4", "topology.prefill.args.port=31000"),
    )
    prefill, decode = made.servers[:2], made.servers[2]
    assert [server.gpus for server in made.servers] == [(4,), (5,), (0,)]
    assert [server.plan.values["port"] for server in made.servers] == [31000, 31001, 30001]
    assert [server.bootstrap_port for server in prefill] == [9500, 9501]
    assert decode.plan.values["base_gpu_id"] == 0
    assert said(made) == []


# What they must agree on


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["topology.decode.args.tp_size=4", "topology.prefill.args.tp_size=2"], []),
        (["topology.decode.args.page_size=64"], [("TOP010", "error")]),
        (["topology.decode.args.kv_cache_dtype=fp8_e5m2"], [("TOP010", "error")]),
        (["topology.decode.args.dtype=float16"], [("TOP010", "error")]),
        (["topology.decode.args.disaggregation_transfer_backend=nixl"], [("TOP009", "error")]),
        (["topology.decode.args.pp_size=2", "disable_overlap_schedule=true"], [("TOP008", "error")]),
        (["topology.prefill.args.pp_size=2", "disable_overlap_schedule=true"], []),
        (
            ["topology.prefill.args.dp_size=2", "topology.prefill.args.load_balance_method=shortest_queue"],
            [("TOP011", "error")],
        ),
        (["topology.prefill.args.dp_size=2"], []),
        (
            [
                *("topology.decode.args.dp_size=2", "topology.decode.args.prefill_round_robin_balance=true"),
                "load_balance_method=minimum_tokens",
            ],
            [("TOP011", "error")],
        ),
        (
            ["topology.decode.args.dp_size=2", "topology.decode.args.prefill_round_robin_balance=true"],
            [],
        ),
        (["topology.decode.args.model_path=Qwen/Qwen3-8B-FP8"], [("TOP012", "warning")]),
        (["topology.prefill.args.base_gpu_id=1", "topology.decode.args.base_gpu_id=1"], [("TOP005", "error")]),
        (["topology.prefill.args.port=31000", "topology.decode.args.port=31000"], [("TOP006", "error")]),
        (["topology.prefill.args.port=30000"], [("TOP006", "error")]),
        (["topology.decode.args.port=8998"], []),
        (["topology.router.prometheus_port=30000"], [("TOP006", "error")]),
        (["dist_init_addr=127.0.0.1:5000"], [("TOP006", "error")]),
        (['kv_events_config={"publisher":"zmq","endpoint":"tcp://*:5557"}'], [("TOP006", "error")]),
        (["tp_size=8"], [("TOP004", "error")]),
        (["topology.router.decode_policy=power_of_two"], [("TOP013", "error")]),
        (["topology.router.decode_policy=power_of_two", "topology.decode.replicas=2"], []),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else None,
)
def test_prefill_and_decode_servers_are_checked_together(overrides: list[str], expected: list[tuple[str, str]]) -> None:
    made = topology(*PD, *overrides)
    assert said(made) == expected
    errors = [finding for finding in made.together if finding.level == "error"]
    assert all(finding.hint and finding.fields for finding in errors)
    assert made.launchable is not any(level == "error" for _, level in expected)
    assert made.ok


@pytest.mark.parametrize(
    ("model", "release", "backend", "decode_tp", "refused"),
    [
        ("gpt_oss_120b", "0.5.16", "nixl", 4, True),
        ("gpt_oss_120b", "0.5.16", "mooncake", 4, True),
        ("gpt_oss_120b", "0.5.16", "nixl", 1, False),
        ("gpt_oss_120b", "0.5.23", "nixl", 4, True),
        ("gpt_oss_120b", "0.5.23", "mooncake", 4, False),
        ("qwen3_8b", "0.5.16", "nixl", 4, False),
        ("deepseek_v3", "0.5.16", "nixl", 4, False),
    ],
)
def test_windows_are_sent_between_equal_splits_only(
    model: str, release: str, backend: str, decode_tp: int, refused: bool
) -> None:
    """gpt-oss with 1 and 4 ranks on 0.5.16: llm-d issue 2433."""
    made = topology(
        *("gpu=h200", f"model={model}", "topology=pd", f"engine.version={release}", "topology.prefill.args.tp_size=1"),
        *(f"topology.decode.args.tp_size={decode_tp}", f"disaggregation_transfer_backend={backend}"),
    )
    assert ("TOP023" in {finding.id for finding in made.together}) is refused


@pytest.mark.parametrize(
    ("release", "prefill", "decode", "refused"),
    [("0.5.2", 2, 2, True), ("0.5.16", 2, 2, False), ("0.5.16", 4, 2, True), ("0.5.23", 2, 1, False)],
)
def test_decode_servers_have_one_stage_or_those_of_prefill_servers(
    release: str, prefill: int, decode: int, refused: bool
) -> None:
    made = topology(
        *(*PD, f"engine.version={release}", "disable_overlap_schedule=true"),
        *(f"topology.prefill.args.pp_size={prefill}", f"topology.decode.args.pp_size={decode}"),
    )
    assert ("TOP008" in {finding.id for finding in made.together}) is refused


def test_attention_that_is_split_unevenly_is_refused() -> None:
    made = topology(
        *("gpu=h200", "gpu.count=32", "model=deepseek_v3", "topology=pd", "load_balance_method=round_robin"),
        *("topology.prefill.args.tp_size=16", "topology.prefill.args.dp_size=2"),
        *("topology.decode.args.tp_size=8", "topology.decode.args.dp_size=1", "enable_dp_attention=true"),
    )
    assert "TOP007" not in {finding.id for finding in made.together}
    made = topology(
        *("gpu=h200", "gpu.count=32", "model=deepseek_v3", "topology=pd", "enable_dp_attention=true"),
        *("topology.prefill.args.tp_size=12", "topology.prefill.args.dp_size=4"),
        *("topology.decode.args.tp_size=4", "topology.decode.args.dp_size=2"),
    )
    assert "TOP007" in {finding.id for finding in made.together}


@pytest.mark.parametrize(
    ("overrides", "id", "hint"),
    [
        (
            ["topology.prefill.args.tp_size=2", "topology.decode.args.tp_size=3"],
            "DIS008",
            "topology.decode.args.tp_size=N, or topology.prefill.args.tp_size=N",
        ),
        (
            ["topology.decode.args.dp_size=2"],
            "DIS004",
            "topology.decode.args.prefill_round_robin_balance=true",
        ),
    ],
)
def test_what_sglang_itself_refuses_is_said_with_the_keys_of_the_topology(
    overrides: list[str], id: str, hint: str
) -> None:
    made = topology(*PD, *overrides)
    assert not made.ok
    assert hint in [finding.hint for finding in made.findings if finding.id == id]


def test_a_finding_of_all_servers_is_said_once() -> None:
    made = topology(*FOUR, "context_length=1000000")
    found = [(finding.id, [server.name for server in servers]) for finding, servers in made.findings_with_servers]
    assert len(found) == len({id for id, _ in found})
    assert all(len(servers) == 4 for _, servers in found)
    assert found


def test_too_many_servers_are_said_once_and_how_many_fit() -> None:
    made = topology(*H200, "topology=replicas", "replicas=6", "tp_size=2")
    assert [(finding.id, finding.message, finding.hint) for finding in made.findings] == [
        (
            "TOP004",
            "6 servers need 12 GPUs, and h200 has 8: replica 4 takes 8,9, replica 5 takes 10,11",
            "replicas=4; or gpu.count=12 if the node has as many; or topology.nodes=2",
        )
    ]


def test_findings_of_ours_can_be_ignored() -> None:
    made = topology(*PD, "topology.decode.args.page_size=64", "ignore=[TOP010]")
    assert said(made) == []
    assert [finding.id for finding in made.ignored if finding.level == "error"] == ["TOP010"]
    assert made.launchable


# What is no topology


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["topology=replicas"], ("TOP001", "topology=replicas: how many?")),
        (["topology=replicas", "replicas=0"], ("TOP001", "replicas=0: a topology has 1 to 256 servers")),
        (["topology=pd", "replicas=2"], ("TOP001", "replicas=2 is for topology=replicas")),
        (
            ["topology=pd", "topology.decode.replicas=-1"],
            ("TOP001", "topology.decode.replicas=-1: a topology has 1 to 256 servers"),
        ),
        (["topology=pd", "topology.name=dp"], ("TOP001", "topology.name='dp' is not one of single, replicas, pd")),
        (
            ["topology=pd", "topology.on_worker_exit=restart"],
            ("TOP001", "topology.on_worker_exit='restart' is neither continue nor stop"),
        ),
        (
            ["topology=pd", "topology.router.ready_timeout=0"],
            ("TOP001", "topology.router.ready_timeout=0.0 is no time in seconds to wait"),
        ),
        (
            ["topology=pd", "topology.prefill.args.tpsize=2"],
            ("CLI001", "topology.prefill.args.tpsize: 'tpsize' is no argument of SGLang 0.5.2"),
        ),
        (
            ["topology=pd", "topology.prefill.args.gpu=h100"],
            ("CLI001", "topology.prefill.args.gpu: 'gpu' is no argument of SGLang 0.5.2"),
        ),
        (
            ["topology=pd", "topology.prefill.args.tp_size=many"],
            ("CLI002", "tp_size='many' is not an int"),
        ),
        (
            ["topology=pd", "topology.prefill.args.disaggregation_mode=decode"],
            ("TOP002", "topology.prefill.args.disaggregation_mode: the role sets it"),
        ),
        (
            ["topology=pd", "topology.prefill.args.api_key=sesame"],
            (
                "TOP002",
                "topology.prefill.args.api_key: all servers and the router have one key: api_key='${oc.env:MY_KEY}'",
            ),
        ),
        (
            ["topology=pd", "topology.router.args.api_key=sesame"],
            ("TOP014", "topology.router.args.api_key: the router is given the servers' key"),
        ),
        (
            ["topology=pd", "topology.router.args.oracle_password=sesame"],
            ("TOP014", "topology.router.args.oracle_password holds a password, which its command line would show"),
        ),
        (
            ["topology=pd", "disaggregation_mode=prefill"],
            ("TOP002", "disaggregation_mode=prefill is for a server that is started alone; a topology sets it itself"),
        ),
        (
            ["topology=replicas", "replicas=2", "topology.nodes=3"],
            ("TOP001", "topology.nodes=3: 2 replica servers on 1 node each cannot share out 3 nodes"),
        ),
        (
            [
                "topology=pd",
                "topology.prefill.replicas=2",
                "topology.prefill.args.nnodes=2",
                "topology.prefill.nodes=3",
            ],
            ("TOP001", "topology.prefill.nodes=3: 2 prefill servers on 2 nodes each cannot share out 3 nodes"),
        ),
        (
            ["topology=pd", "topology.nodes=2"],
            ("TOP001", "topology.nodes=2 is for topology=replicas"),
        ),
        (
            ["topology=pd", "topology.decode.replicas=2", "topology.decode.args.dist_init_addr=10.0.0.1:5000"],
            ("TOP006", "topology.decode.args.dist_init_addr: 2 servers cannot meet at one address"),
        ),
        (
            ["topology=replicas", "replicas=4", "nccl_port=65534"],
            ("TOP006", "no port from nccl_port=65534 to 65535 is free for another server"),
        ),
        (
            ["topology=pd", "disaggregation_bootstrap_port=70000"],
            ("TOP006", "disaggregation_bootstrap_port=70000 is no port to start from: ports go from 1 to 65535"),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_no_topology_is_refused(overrides: list[str], expected: tuple[str, str]) -> None:
    id, message = expected
    assert refusals(*H200, *overrides) == [(id, message)]


def test_a_router_port_that_is_none_is_refused() -> None:
    made = topology(*FOUR, "port=70000")
    assert ("TOP006", "error") in said(made)
    assert [server.plan.values["port"] for server in made.servers] == [30001, 30002, 30003, 30004]


def test_replicas_without_a_topology_are_not_silently_one_server() -> None:
    plan = planned(*H200, "replicas=4")
    assert [(finding.id, finding.hint) for finding in plan.findings] == [("TOP001", "topology=replicas replicas=4")]
    assert plan.ok
    assert not plan.launchable


@pytest.mark.parametrize("choice", ["topology=single", "topology=null"])
def test_one_server_is_planned_as_ever(choice: str) -> None:
    assert planned(*H200, choice).server_id == planned(*H200).server_id


def test_how_many_replicas_fit_is_in_the_hint() -> None:
    with pytest.raises(ConfigError) as refused:
        topology(*H200, "topology=replicas", "tp_size=2")
    assert [finding.hint for finding in refused.value.findings] == ["replicas=4: h200 has 8, a server takes 2"]


# The artifact


@pytest.mark.parametrize("overrides", [FOUR, PD, (*PD, "topology.decode.args.page_size=64", "ignore=[TOP010]")])
def test_the_record_is_what_its_schema_says(overrides: tuple[str, ...]) -> None:
    made = topology(*overrides)
    record = json.loads(json.dumps(made.to_json(), allow_nan=False))
    Draft202012Validator(schema_of("topology")).validate(record)
    for server in record["servers"]:
        Draft202012Validator(schema_of("plan")).validate(server["plan"])


def test_no_key_is_in_the_record_and_none_in_a_command() -> None:
    made = topology(*PD, "api_key=correct-horse", "topology.router.policy=round_robin")
    assert "correct-horse" not in json.dumps(made.to_json())
    assert "--api-key" not in made.router_argv
    assert all("--api-key" not in server.plan.command for server in made.servers)
    assert "TOP018" in {finding.id for finding in made.together}


def test_the_machine_is_asked_once_for_all_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def probed(env: object, python: str | None = None) -> GpuProbe:
        asked.append(python)
        return GpuProbe(
            vendor="nvidia",
            device="cuda",
            names=("NVIDIA H200",) * 8,
            memory_mib=143771.0,
            visible_memory_mib=143771.0,
            compute_capability=(9, 0),
            count=8,
            total=8,
            flashinfer=True,
            triton_kernels=True,
        )

    monkeypatch.setattr(probe, "probe_gpu", probed)
    made = topology("gpu=auto", "model=qwen3_8b", "topology=replicas", "replicas=8")
    assert made.launchable
    assert len(asked) == 1
