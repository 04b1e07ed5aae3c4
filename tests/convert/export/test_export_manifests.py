"""compose and k8s: manifests that their own schemas accept and whose readers get the plan."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.cli.main import entry
from sglang_hydra.convert.export.job import job_of
from sglang_hydra.convert.export.registry import render
from sglang_hydra.convert.export.variables import KEY_PROGRAM
from sglang_hydra.text.errors import ConfigError
from tests.convert.export.exports import (
    DEEPSEEK,
    HOSTILE,
    TWO_NODES,
    artifact,
    check_manifest,
    compose_reads,
    documents,
    kubernetes_reads,
    plan_of,
    pods,
    schema,
)
from tests.convert.export.test_export_hostile import hostile_plan
from tests.convert.export.test_export_scripts import KEY, PLANS

HOME = {"HOME": "/home/me"}
NODE = {"NODE_RANK": "1", "HEAD_ADDRESS": "10.0.0.1"}
WITH_IMAGE = {**PLANS, **{name: (*PLANS[name], "launch.image=a/b:c") for name in ("CPU", "no known image")}}
GROUP = {"LWS_LEADER_ADDRESS": "leader.svc", "LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "2"}


def service(*overrides: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    read = compose_reads(artifact("compose", *overrides).text, {**HOME, **(env or {})})
    found: dict[str, Any] = read["services"]["sglang"]
    return found


def container(*overrides: str) -> dict[str, Any]:
    found: dict[str, Any] = pods(artifact("k8s", *overrides).text)[0]["spec"]["containers"][0]
    return found


def kinds(*overrides: str) -> list[str]:
    return [document["kind"] for document in documents(artifact("k8s", *overrides).text)]


@pytest.mark.parametrize("overrides", PLANS.values(), ids=PLANS.keys())
def test_every_compose_file_follows_the_specification(overrides: tuple[str, ...]) -> None:
    [document] = documents(artifact("compose", *overrides).text)
    jsonschema.Draft7Validator(schema("compose-spec.json")).validate(document)


def test_the_compose_specification_refuses_a_typo() -> None:
    [document] = documents(artifact("compose", *DEEPSEEK).text)
    document["services"]["sglang"]["imagee"] = "x"
    with pytest.raises(jsonschema.ValidationError, match="imagee"):
        jsonschema.Draft7Validator(schema("compose-spec.json")).validate(document)


@pytest.mark.parametrize("overrides", WITH_IMAGE.values(), ids=WITH_IMAGE.keys())
def test_kubernetes_accepts_every_manifest(overrides: tuple[str, ...]) -> None:
    check_manifest(artifact("k8s", *overrides).text)


def test_manifests_with_hostile_texts_follow_their_schemas() -> None:
    validator = jsonschema.Draft7Validator(schema("compose-spec.json"))
    for place, text in enumerate(HOSTILE.values()):
        plan = hostile_plan(text)
        validator.validate(documents(render("compose", job_of(plan, ())).text)[0])
        if place % 4 == 0:  # the strict check of Kubernetes takes long, and a text is only ever a string to it
            check_manifest(render("k8s", job_of(plan, ())).text)


def at(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        document = document[key]
    return document


@pytest.mark.parametrize(
    "path",
    [(), ("spec",), ("spec", "leaderWorkerTemplate"), ("spec", "leaderWorkerTemplate", "leaderTemplate")],
    ids=lambda path: ".".join(path) or "root",
)
def test_a_typo_in_a_leader_worker_set_fails(path: tuple[str, ...]) -> None:
    workload = copy.deepcopy(documents(artifact("k8s", *TWO_NODES).text)[1])
    at(workload, *path)["replicaz"] = 1
    with pytest.raises(jsonschema.ValidationError, match="replicaz"):
        jsonschema.validate(workload, schema("leaderworkerset.json"))


def test_a_typo_in_a_pod_of_a_leader_worker_set_fails() -> None:
    text = artifact("k8s", *TWO_NODES).text.replace("terminationGracePeriodSeconds", "terminationGracePeriod", 1)
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        check_manifest(text)


def test_a_typo_in_a_deployment_fails() -> None:
    with pytest.raises(kubernetes_validate.ValidationError, match="livenesProbe"):
        check_manifest(artifact("k8s", *DEEPSEEK).text.replace("livenessProbe", "livenesProbe"))


def told(words: list[str]) -> dict[str, Any]:
    return parse_argv(words[next(at for at, word in enumerate(words) if word.startswith("--")) :])


def test_compose_starts_the_plan_with_its_gpus_and_memory() -> None:
    found = service(*DEEPSEEK)
    assert told(found["command"]) == {
        "model_path": "deepseek-ai/DeepSeek-V3",
        "tp_size": 8,
        "random_seed": 42,
        "host": "0.0.0.0",
    }
    assert found["image"] == "lmsysorg/sglang:v0.5.2-cu126"
    [device] = found["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert (found["ipc"], found["shm_size"], found["ports"]) == ("host", "32g", ["127.0.0.1:30000:30000"])
    assert found["environment"] == {"HF_HOME": "/cache/huggingface", "HF_TOKEN": None}
    assert found["volumes"][0]["target"] == "/cache/huggingface"
    assert found["volumes"][0]["source"] == "/home/me/.cache/huggingface"
    assert service(*DEEPSEEK, env={"HF_HOME": "/data/hf"})["volumes"][0]["source"] == "/data/hf"


def test_compose_of_several_nodes_runs_on_each_and_says_so() -> None:
    made = artifact("compose", *TWO_NODES)
    assert [finding.id for finding in made.findings] == ["EXP011"]
    found = service(*TWO_NODES, env=NODE)
    assert told(found["command"])["node_rank"] == 1
    assert told(found["command"])["dist_init_addr"] == "10.0.0.1:20000"
    assert found["network_mode"] == "host"
    assert "ports" not in found
    with pytest.raises(LookupError, match="HEAD_ADDRESS: the address of node 0"):
        service(*TWO_NODES)


def test_compose_asks_for_an_unknown_image() -> None:
    overrides = PLANS["no known image"]
    with pytest.raises(LookupError, match=r"no published image of SGLang 0\.5\.23 is known"):
        service(*overrides)
    assert service(*overrides, env={"SGLANG_IMAGE": "mine:1"})["image"] == "mine:1"


def test_compose_takes_secrets_from_its_environment() -> None:
    overrides = PLANS["with a key"]
    assert KEY not in artifact("compose", *overrides).text
    with pytest.raises(LookupError, match="SGLANG_API_KEY"):
        service(*overrides)
    found = service(*overrides, env={"SGLANG_API_KEY": KEY})
    assert found["command"][:3] == ["python3", "-c", KEY_PROGRAM]
    assert found["environment"]["SGLANG_API_KEY"] == KEY


def test_amd_services_get_its_devices() -> None:
    found = service(*PLANS["AMD"])
    assert found["devices"] == ["/dev/kfd", "/dev/dri"]
    assert (found["group_add"], found["security_opt"]) == (["video"], ["seccomp=unconfined"])
    assert "deploy" not in found


def test_one_node_is_a_deployment_with_a_service_and_a_cache() -> None:
    assert kinds(*DEEPSEEK) == ["PersistentVolumeClaim", "Deployment", "Service"]
    claim, workload, entry = documents(artifact("k8s", *DEEPSEEK).text)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert entry["spec"]["selector"].items() <= labels.items()
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert entry["spec"]["ports"] == [{"name": "http", "port": 30000, "targetPort": 30000}]
    # The checkpoint has 637 GiB, and there is room beside it.
    assert claim["spec"]["resources"]["requests"]["storage"] == "800Gi"
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_a_pod_starts_the_plan_with_its_gpus_and_memory() -> None:
    found = container(*DEEPSEEK)
    assert told(found["args"])["host"] == "0.0.0.0"
    assert found["command"] == ["python3", "-m", "sglang.launch_server"]
    requests = {"memory": "144Gi", "ephemeral-storage": "10Gi"}
    assert found["resources"] == {"limits": {"nvidia.com/gpu": 8}, "requests": requests}
    [pod] = pods(artifact("k8s", *DEEPSEEK).text)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in found["volumeMounts"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}
    assert mounts == {"shm": "/dev/shm", "cache": "/cache/huggingface"}
    assert {"name": "HF_HOME", "value": "/cache/huggingface"} in found["env"]


def test_a_pod_with_a_model_of_its_node_has_no_volume_to_download_to(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = container("gpu=h200", f"model_path={tmp_path}")
    assert "cache" not in [mount["name"] for mount in found["volumeMounts"]]
    assert "HF_HOME" not in [variable["name"] for variable in found["env"]]


def test_the_probes_follow_the_settings_and_give_health_its_time() -> None:
    found = container(*DEEPSEEK, "launch.ready_timeout=3605")
    startup, live = found["startupProbe"], found["livenessProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 3610
    assert live["httpGet"] == {"path": "/health", "port": 30000}
    # /health generates a token: a second when idle, and SGLang gives up after 20.
    assert live["timeoutSeconds"] > 20
    assert live["periodSeconds"] >= live["timeoutSeconds"]


def test_secrets_come_from_the_servers_secret() -> None:
    text = artifact("k8s", *PLANS["with a key"], "+engine.env.HF_TOKEN=hf_abc").text
    assert KEY not in text
    assert "hf_abc" not in text
    named = [entry for entry in pods(text)[0]["spec"]["containers"][0]["env"] if "valueFrom" in entry]
    env = {entry["name"]: entry["valueFrom"]["secretKeyRef"] for entry in named}
    assert env["SGLANG_API_KEY"] == {"name": "sglang-deepseek-v3", "key": "SGLANG_API_KEY"}
    assert env["HF_TOKEN"] == {"name": "sglang-deepseek-v3", "key": "HF_TOKEN"}
    [token] = [entry for entry in container(*DEEPSEEK)["env"] if "valueFrom" in entry]
    assert token["valueFrom"]["secretKeyRef"]["optional"] is True


def test_several_nodes_are_a_leader_worker_set() -> None:
    assert kinds(*TWO_NODES) == ["PersistentVolumeClaim", "LeaderWorkerSet", "Service"]
    claim, workload, entry = documents(artifact("k8s", *TWO_NODES).text)
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert workload["spec"]["leaderWorkerTemplate"]["size"] == 2
    leader, worker = pods(artifact("k8s", *TWO_NODES).text)
    assert entry["spec"]["selector"].items() <= leader["metadata"]["labels"].items()
    assert not entry["spec"]["selector"].items() <= worker["metadata"]["labels"].items()
    for pod in (leader, worker):
        words = [kubernetes_reads(word, GROUP) for word in pod["spec"]["containers"][0]["args"]]
        assert told(words)["dist_init_addr"] == "leader.svc:20000"
        assert (told(words)["node_rank"], told(words)["nnodes"]) == (1, 2)
    assert "livenessProbe" not in worker["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("fabric", "variables", "host_network"),
    [
        ("null", {}, False),
        ("tcp", {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}, False),
        ("roce", {"NCCL_IB_DISABLE": "0", "NCCL_IB_GID_INDEX": "3"}, True),
        ("ib", {"NCCL_IB_DISABLE": "0"}, True),
    ],
)
def test_the_fabric_decides_the_network(fabric: str, variables: dict[str, str], host_network: bool) -> None:
    overrides = (*TWO_NODES, f"fabric={fabric}", "launch.k8s.rdma_resource=rdma/ib")
    for pod in pods(artifact("k8s", *overrides).text):
        [each] = pod["spec"]["containers"]
        assert {entry["name"]: entry["value"] for entry in each["env"] if "value" in entry} == {
            "HF_HOME": "/cache/huggingface",
            **variables,
        }
        assert pod["spec"].get("hostNetwork", False) is host_network
        assert (each["resources"]["limits"].get("rdma/ib") == 1) is host_network
        assert ("capabilities" in each["securityContext"]) is host_network


def test_a_variable_of_the_plan_beats_the_fabrics() -> None:
    found = container(*TWO_NODES, "fabric=roce", "+engine.env.NCCL_IB_GID_INDEX=7")
    assert {"name": "NCCL_IB_GID_INDEX", "value": "7"} in found["env"]


def test_amd_pods_ask_for_its_gpus() -> None:
    found = container(*PLANS["AMD"])
    assert found["resources"]["limits"] == {"amd.com/gpu": 8}
    assert found["securityContext"]["seccompProfile"] == {"type": "Unconfined"}
    assert found["image"].startswith("rocm/7.0:")


def test_no_manifest_is_written_without_an_image_and_what_to_type_leads_to_one() -> None:
    with pytest.raises(ConfigError) as caught:
        artifact("k8s", *PLANS["no known image"])
    [refused] = caught.value.findings
    assert (refused.id, refused.level) == ("EXP002", "error")
    [with_image] = [one.words for one in refused.remedies if one.words]
    assert container(*PLANS["one node"], *with_image)["image"].startswith("lmsysorg/sglang:v0.5.")


@pytest.mark.parametrize(
    ("words", "placed"),
    [
        (["gpu=h100"], {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}),
        (["gpu=h100", "launch.k8s.node_selector={pool: mine}"], {"nodeSelector": {"pool": "mine"}}),
        (["gpu=h100", "launch.k8s.node_selector={}"], {}),
        (["gpu=mi300x"], {}),
    ],
)
def test_pods_run_on_nodes_of_the_class(words: list[str], placed: dict[str, Any]) -> None:
    [pod] = pods(artifact("k8s", *words, "model=qwen3_8b", "launch.image=a/b:c").text)
    assert {name: pod["spec"][name] for name in ("nodeSelector", "affinity") if name in pod["spec"]} == placed


def test_a_class_of_several_names_has_a_node_of_any() -> None:
    made = artifact("k8s", "gpu=a10", "model=qwen3_8b", "launch.image=a/b:c").text
    check_manifest(made)
    [term] = pods(made)[0]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]  # fmt: skip
    [rule] = term["matchExpressions"]
    assert (rule["operator"], rule["values"]) == ("In", ["NVIDIA-A10", "NVIDIA-A10G"])


@pytest.mark.parametrize("words", [[], ["topology=replicas", "replicas=2"]], ids=str)
def test_every_object_is_in_the_namespace_and_the_container_has_its_context(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["gpu=h100", "model=qwen3_8b", "launch.image=a/b:c", "launch.k8s.namespace=inference"]
    assert entry(["export", "k8s", *base, "launch.k8s.security_context.runAsNonRoot=true", *words]) == 0
    made = capsys.readouterr().out
    assert {each["metadata"]["namespace"] for each in documents(made)} == {"inference"}
    templates = [each["spec"]["template"] for each in documents(made) if "template" in each["spec"]]
    servers = [each for pod in templates for each in pod["spec"]["containers"] if each["name"] == "sglang"]
    assert servers
    context = {"allowPrivilegeEscalation": False, "runAsNonRoot": True}
    assert all(each["securityContext"] == context for each in servers)
    assert "create secret generic -n inference" in made


def test_a_namespace_that_can_be_none_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        artifact("k8s", "gpu=h100", "model=qwen3_8b", "launch.image=a/b:c", "launch.k8s.namespace=In_Ference")
    assert [finding.id for finding in caught.value.findings] == ["EXP015"]


def test_a_local_model_comes_from_the_node_and_needs_no_cache() -> None:
    made = artifact("k8s", *WITH_IMAGE["CPU"])
    [pod] = pods(made.text)
    [files] = [volume for volume in pod["spec"]["volumes"] if "hostPath" in volume]
    [mount] = [mount for mount in pod["spec"]["containers"][0]["volumeMounts"] if mount["name"] == files["name"]]
    assert mount["readOnly"] is True
    assert mount["mountPath"] == files["hostPath"]["path"] == plan_of(*WITH_IMAGE["CPU"]).values["model_path"]
    assert "EXP014" in [finding.id for finding in made.findings]
    assert kinds(*WITH_IMAGE["CPU"]) == ["Deployment", "Service"]


def test_the_cache_has_the_size_and_class_that_are_asked_for() -> None:
    settings = ("launch.k8s.cache_gib=64", "launch.k8s.storage_class=fast")
    claim = documents(artifact("k8s", *DEEPSEEK, *settings).text)[0]["spec"]
    assert claim["resources"]["requests"]["storage"] == "64Gi"
    assert claim["storageClassName"] == "fast"


@pytest.mark.parametrize(
    "setting",
    ["cache_gib=0", "storage_class=Fast", "storage_class='a b'", "rdma_resource=rdma", "rdma_resource='a/ b'"],
)
def test_settings_that_kubernetes_would_refuse_are_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="EXP015"):
        artifact("k8s", *DEEPSEEK, f"launch.k8s.{setting}")


def test_a_path_that_kubernetes_cannot_mount_is_refused() -> None:
    overrides = ("gpu=h200", "model=qwen3_8b", "chat_template='/a:b.jinja'")
    with pytest.raises(ConfigError, match="EXP023"):
        artifact("k8s", *overrides)
    assert service(*overrides)["volumes"][1]["source"] == "/a:b.jinja"


@pytest.mark.parametrize("format", ["docker", "compose", "k8s"])
def test_accelerators_that_nothing_is_known_of_are_refused(format: str) -> None:
    with pytest.raises(ConfigError, match="EXP010"):
        artifact(format, "gpu=gaudi3", "model=qwen3_8b")
    assert "launch_server" in artifact("shell", "gpu=gaudi3", "model=qwen3_8b").text
