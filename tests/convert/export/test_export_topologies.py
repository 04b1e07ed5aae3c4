"""Several servers behind a router as a Compose file and as Kubernetes manifests."""

from __future__ import annotations

import subprocess
from typing import Any

import jsonschema
import pytest
import yaml

from sglang_hydra.arguments.reading import parse_argv
from tests.commands import Run, runner, valid
from tests.convert.export.exports import check_manifest, compose_reads, kubernetes_reads, schema

SERVERS = ["gpu=h200", "model=qwen3_8b", "random_seed=1", "engine.version=0.5.2"]
REPLICAS = [*SERVERS, "tp_size=2", "topology=replicas", "replicas=3"]
PD = [*SERVERS, "topology=pd", "topology.prefill.replicas=2", "topology.prefill.args.tp_size=2", "port=8000"]
KEY = "correct-horse"
WIDE = [
    *("gpu=h200", "model=deepseek_v3", "random_seed=1", "engine.version=0.5.2", "topology=pd", "tp_size=8"),
    *("topology.decode.args.tp_size=16", "topology.decode.args.nnodes=2"),
]
SHAPES = {"replicas": REPLICAS, "pd": PD, "replicas with a key": [*REPLICAS, f"api_key={KEY}"]}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def exported(run: Run, format: str, words: list[str]) -> str:
    done = run("export", format, *words)
    assert done.code == 0, done.err
    return done.out


def services(run: Run, words: list[str]) -> dict[str, Any]:
    read = compose_reads(exported(run, "compose", words), {"HOME": "/home/me", "SGLANG_API_KEY": KEY})
    found: dict[str, Any] = read["services"]
    return found


def manifests(run: Run, words: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    documents = yaml.safe_load_all(exported(run, "k8s", words))
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def container(document: dict[str, Any]) -> dict[str, Any]:
    [only] = document["spec"]["template"]["spec"]["containers"]
    return dict(only)


def told(words: list[str]) -> dict[str, Any]:
    return parse_argv(words[words.index("--model-path") :])


def values_of(words: list[str], option: str) -> list[str]:
    """What stands between an option and the next one, wherever it comes."""
    found: list[str] = []
    for at, word in enumerate(words):
        if word == option:
            rest = words[at + 1 :]
            end = next((end for end, other in enumerate(rest) if other.startswith("--")), len(rest))
            found += rest[:end]
    return found


@pytest.mark.parametrize("words", [*SHAPES.values(), WIDE], ids=[*SHAPES, "over nodes"])
def test_the_schemas_accept_them(words: list[str], run: Run) -> None:
    document = yaml.safe_load(exported(run, "compose", words))
    jsonschema.Draft7Validator(schema("compose-spec.json")).validate(document)
    check_manifest(exported(run, "k8s", words))


def test_each_replica_has_a_container_with_its_own_gpus(run: Run) -> None:
    found = services(run, REPLICAS)
    assert list(found) == ["replica-0", "replica-1", "replica-2", "router"]
    gpus = [
        found[f"replica-{index}"]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for index in range(3)
    ]
    assert gpus == [["0", "1"], ["2", "3"], ["4", "5"]]
    for index in range(3):
        asked = told(found[f"replica-{index}"]["command"])
        # In its container a server counts its GPUs from 0 and has all ports to itself.
        assert asked == {
            "model_path": "Qwen/Qwen3-8B",
            "host": "0.0.0.0",
            "port": 30001 + index,
            "tp_size": 2,
            "random_seed": 1,
        }
        assert "ports" not in found[f"replica-{index}"]


def test_the_router_waits_for_healthy_servers_and_knows_them_by_name(run: Run) -> None:
    router = services(run, REPLICAS)["router"]
    assert router["depends_on"] == {f"replica-{index}": {"condition": "service_healthy"} for index in range(3)}
    assert router["ports"] == ["127.0.0.1:30000:30000"]
    words = router["command"]
    assert words[:2] == ["sh", "-c"]
    assert words[2].startswith("pip install ")
    assert words[2].endswith('sglang-router==0.1.9 && exec "$@"')
    assert words[3:7] == ["router", "python3", "-m", "sglang_router.launch_router"]
    assert values_of(words, "--host") == ["0.0.0.0"]
    assert values_of(words, "--worker-urls") == [f"http://replica-{index}:{30001 + index}" for index in range(3)]


def test_prefill_and_decode_servers_are_stateful_sets_that_the_router_finds(run: Run) -> None:
    found = manifests(run, PD)
    assert {kind for kind, _ in found} == {"PersistentVolumeClaim", "StatefulSet", "Service", "Deployment"}
    prefill = found["StatefulSet", "sglang-qwen3-8b-prefill"]
    decode = found["StatefulSet", "sglang-qwen3-8b-decode"]
    assert (prefill["spec"]["replicas"], decode["spec"]["replicas"]) == (2, 1)
    words = [kubernetes_reads(word, {}) for word in container(prefill)["args"]]
    assert (told(words)["disaggregation_mode"], told(words)["tp_size"]) == ("prefill", 2)
    assert container(prefill)["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert container(decode)["resources"]["limits"] == {"nvidia.com/gpu": 1}
    router = [
        kubernetes_reads(word, {}) for word in container(found["Deployment", "sglang-qwen3-8b-router"])["command"]
    ]
    port, name = told(words)["port"], "sglang-qwen3-8b-prefill"
    assert values_of(router, "--prefill") == [
        f"http://{name}-0.{name}:{port}",
        "8998",
        f"http://{name}-1.{name}:{port}",
        "8998",
    ]
    [url] = values_of(router, "--decode")
    assert url.startswith("http://sglang-qwen3-8b-decode-0.sglang-qwen3-8b-decode:")
    headless = found["Service", name]["spec"]
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    assert prefill["spec"]["serviceName"] == name
    clients = found["Service", "sglang-qwen3-8b"]["spec"]
    assert clients["ports"] == [{"name": "http", "port": 8000, "targetPort": 8000}]
    labels = found["Deployment", "sglang-qwen3-8b-router"]["spec"]["template"]["metadata"]["labels"]
    assert clients["selector"] == labels


def test_the_key_reaches_servers_and_router_by_name(run: Run) -> None:
    words = SHAPES["replicas with a key"]
    for format in ("compose", "k8s"):
        assert KEY not in exported(run, format, words)
    found = services(run, words)
    assert all(service["environment"]["SGLANG_API_KEY"] == KEY for service in found.values())
    assert 'runpy.run_module("sglang_router.launch_router"' in found["router"]["command"][6]
    router = container(manifests(run, words)["Deployment", "sglang-qwen3-8b-router"])
    assert router["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "sglang-qwen3-8b", "key": "SGLANG_API_KEY"}


def test_amd_servers_see_their_own_gpus(run: Run) -> None:
    words = ["gpu=mi300x", "model=qwen3_8b", "random_seed=1", "topology=replicas", "replicas=2", "engine.version=0.5.2"]
    found = services(run, words)
    assert [found[f"replica-{index}"]["environment"]["HIP_VISIBLE_DEVICES"] for index in range(2)] == ["0", "1"]


def test_on_rdma_all_share_the_hosts_network(run: Run) -> None:
    found = services(run, [*REPLICAS, "fabric=ib"])
    assert all(service["network_mode"] == "host" for service in found.values())
    assert values_of(found["router"]["command"], "--worker-urls")[1] == "http://127.0.0.1:30002"


def test_over_nodes_compose_starts_on_each_node_what_belongs_there(run: Run) -> None:
    addresses = {f"NODE{number}": f"10.0.0.{number}" for number in range(3)}
    text = exported(run, "compose", WIDE)
    read = compose_reads(text, {"HOME": "/home/me", "NODE_RANK": "1", **addresses})
    found = read["services"]
    assert {name: service["profiles"] for name, service in found.items()} == {
        "prefill-0": ["node0"],
        "decode-0": ["node1", "node2"],
        "router": ["node0"],
    }
    decode = told(found["decode-0"]["command"])
    assert (decode["dist_init_addr"], decode["node_rank"], decode["nnodes"]) == ("10.0.0.1:30102", 1, 2)
    router = found["router"]["command"]
    assert values_of(router, "--prefill")[0] == "http://10.0.0.0:30001"
    assert values_of(router, "--decode") == ["http://10.0.0.1:30002"]
    assert list(found["router"]["depends_on"]) == ["prefill-0"]
    assert all(service["network_mode"] == "host" for service in found.values())
    assert "on node 2: NODE_RANK=1 docker compose -f THIS_FILE --profile node2 up" in text


def test_a_role_with_several_nodes_is_a_leader_worker_set_that_the_router_finds(run: Run) -> None:
    found = manifests(run, [*WIDE, "topology.decode.replicas=2"])
    name = "sglang-deepseek-v3-decode"
    decode = found["LeaderWorkerSet", name]["spec"]
    assert (decode["replicas"], decode["leaderWorkerTemplate"]["size"]) == (2, 2)
    [leader] = decode["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"]
    asked = told(
        [kubernetes_reads(word, {"LWS_LEADER_ADDRESS": "x.y", "LWS_WORKER_INDEX": "1"}) for word in leader["args"]]
    )
    assert (asked["dist_init_addr"], asked["node_rank"], asked["tp_size"]) == ("x.y:20000", 1, 16)
    # LeaderWorkerSet makes the Service itself.
    assert ("Service", name) not in found
    router = container(found["Deployment", "sglang-deepseek-v3-router"])["command"]
    assert values_of(router, "--decode") == [f"http://{name}-{index}.{name}:30002" for index in range(2)]
    assert ("StatefulSet", "sglang-deepseek-v3-prefill") in found


@pytest.mark.parametrize("name", ["NODE0", "router", "nodes"])
def test_a_script_refuses_variables_that_it_needs_itself(name: str, run: Run) -> None:
    done = run("export", "slurm", *WIDE, f"engine.env.{name}=x")
    assert done.code == 2
    assert f"EXP022  engine.env.{name}" in done.err


def test_a_script_for_sbatch_starts_each_server_on_its_nodes(run: Run) -> None:
    text = exported(run, "slurm", WIDE)
    assert "#SBATCH --nodes=3" in text
    assert '--nodes=2 --ntasks=2 --nodelist="${nodes[1]},${nodes[2]}"' in text
    assert '--dist-init-addr "${NODE1}:30102" &' in text
    assert '--decode "http://${NODE1}:30002" &' in text
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    keyed = exported(run, "slurm", [*WIDE, f"api_key={KEY}"])
    assert KEY not in keyed
    assert '"$router" -c "$router_program"' in keyed


@pytest.mark.parametrize("format", ["shell", "argv", "engine-kwargs", "docker"])
def test_formats_that_know_one_server_say_so(format: str, run: Run) -> None:
    done = run("export", format, *REPLICAS)
    assert (done.code, done.out) == (2, "")
    assert "EXP021" in done.err


def test_a_topology_that_cannot_be_started_is_not_exported(run: Run) -> None:
    done = run("export", "compose", *SERVERS, "tp_size=8", "topology=replicas", "replicas=2")
    assert (done.code, done.out) == (2, "")
    assert "error TOP" in done.err


def test_a_topology_has_a_record(run: Run) -> None:
    record = valid("export", run("export", "compose", *REPLICAS, "--json").out)
    assert [told(words)["port"] for words in record["argv"]] == [30001, 30002, 30003]
    assert record["text"] == exported(run, "compose", REPLICAS)
