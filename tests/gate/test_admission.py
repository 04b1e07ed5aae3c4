"""``admission``: reviews in and out, over HTTPS, of good, bad and hostile objects."""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.convert.admission import server as server_module
from sglang_hydra.convert.admission.reviews import Answer, Judge, asked, response
from tests.gate.cluster import Client, container, judge, made, review, webhook
from tests.plans import without_accelerator, without_engines

KINDS = ["Pod", "Deployment", "StatefulSet", "Job", "LeaderWorkerSet"]
_WATCHED: list[str] = []
_TOUCHED: list[str] = []


@pytest.fixture(autouse=True)
def _without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)


@pytest.fixture(scope="module")
def judging() -> Judge:
    return judge()


@pytest.fixture
def touched() -> Iterator[list[str]]:
    """What is opened, listed or run below the folders of ``_WATCHED``."""
    _TOUCHED.clear()
    yield _TOUCHED
    _WATCHED.clear()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _WATCHED and event in ("open", "os.listdir", "os.scandir", "subprocess.Popen", "os.exec", "socket.connect"):
        _TOUCHED.extend(str(item) for item in arguments[:1] if event[:2] != "op" or str(item).startswith(*_WATCHED))


sys.addaudithook(_audit)


def answered(judging: Judge, body: bytes) -> dict[str, Any]:
    about = asked(body)
    answer = judging.answer(about.name, about.manifest) if about.manifest else Answer()
    found: dict[str, Any] = json.loads(json.dumps(response(about.uid, answer)))
    assert found["response"]["uid"] == json.loads(body)["request"]["uid"]
    given: dict[str, Any] = found["response"]
    return given


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_denied_by_its_error_and_taken_without_it(judging: Judge, kind: str) -> None:
    denied = answered(judging, review(made(kind, container("--tp=3"))))
    assert not denied["allowed"]
    said = denied["status"]["message"]
    assert said.startswith(f"{kind} chat cannot be launched: CFG004 ")
    assert "(hint: tp_size=4)" in said
    assert answered(judging, review(made(kind, container("--tp=2"))))["allowed"]


@pytest.mark.parametrize("version", ["1.25", "1.31", "1.37"])
def test_an_object_as_three_releases_of_kubernetes_store_it_is_judged_by_its_command(
    judging: Judge, version: str
) -> None:
    """Defaults and the fields that a server writes; the strict schemas of the release accept the object."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    own = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    own |= {"imagePullPolicy": "IfNotPresent", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    if version != "1.25":
        own |= {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]}
    stored = made("Deployment", container("--tp=2", **own))
    about = {"manager": "kubectl", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1"}
    stored["metadata"] |= {"uid": "1b4a", "resourceVersion": "7", "generation": 1, "managedFields": [about]}
    stored["spec"] |= {"replicas": 1, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10}
    pod = stored["spec"]["template"]["spec"]
    pod |= {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler"}
    pod |= {"securityContext": {}, "terminationGracePeriodSeconds": 30}
    kubernetes_validate.validate(stored, version, strict=True)
    assert answered(judging, review(stored))["allowed"]
    old = json.loads(json.dumps(stored))
    pod["containers"][0]["args"][-1] = "--tp=4"
    denied = answered(judging, review(stored, "UPDATE", oldObject=old, requestSubResource=""))
    assert "GPU001" in denied["status"]["message"]


def test_a_flag_that_the_image_does_not_have_is_denied(judging: Judge) -> None:
    denied = answered(judging, review(made("Deployment", container("--cuda-graph-bsx", "4")), "UPDATE"))
    assert "ARG010 SGLang 0.5.9 has no option --cuda-graph-bsx" in denied["status"]["message"]


def test_a_warning_warns_and_denies_nothing(judging: Judge) -> None:
    flags = ("--tp=8", "--dp=8", "--enable-dp-attention", "--chunked-prefill-size=8192", "--trust-remote-code")
    given = answered(judging, review(made("Pod", container(*flags, model="deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"))))
    assert given["allowed"] == (not given.get("status"))
    taken = answered(judging, review(made("Pod", container("--enable-ep-moe"))))
    assert [warning for warning in (*given.get("warnings", ()), *taken.get("warnings", ())) if len(warning) > 260] == []


def test_an_object_without_a_gpu_is_judged_without_one(judging: Judge) -> None:
    stored = made("Pod", container("--tp=2"))
    del stored["spec"]["nodeSelector"]
    given = answered(judging, review(stored))
    assert given["allowed"]
    assert "Pod chat: neither the object nor the webhook names its GPU" in given["warnings"][0]
    stored["spec"]["containers"][0]["args"].append("--mem-fraction-static=1.5")
    assert "CFG005" in answered(judging, review(stored))["status"]["message"]


def test_the_gpu_of_the_webhook_counts() -> None:
    stored = made("Pod", container("--tp=1", model="meta-llama/Llama-3.1-70B-Instruct"))
    del stored["spec"]["nodeSelector"]
    assert "FIT001" in answered(judge("gpu=h100"), review(stored))["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        review(made("Pod", {"name": "web", "image": "nginx", "args": ["--tp=3"]})),
        review(None, "DELETE"),
        review(made("Pod", container("--tp=3")), "DELETE"),
        review(made("Pod", container("--tp=3")), subResource="status"),
        review({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "sglang is nice"}}),
    ],
)
def test_what_starts_no_server_is_taken(judging: Judge, body: bytes) -> None:
    assert answered(judging, body) == {"uid": json.loads(body)["request"]["uid"], "allowed": True}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'"x"',
        b"\xff\xfe",
        b"a: &a [x]\nb: [*a, *a]\n",
        b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "u"}}',
        b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": 3}}',
        b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "' + b"u" * 999 + b'"}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": [' + b"1," * 200_000 + b"1]}",
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_review_is_refused_at_once(body: bytes) -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match=r".+"):
        asked(body)
    assert time.process_time() - start < 1.5


HOSTILE = {
    "many containers": [container(f"--tp={number}") for number in range(1, 60)],
    "a long shell": [container() | {"command": ["sh", "-c", "a=" + "$(" * 3000 + "sglang.launch_server"]}],
    "a loop": [{"name": "x", "command": ["sh", "-c", "while true; do python -m sglang.launch_server --tp 3; done"]}],
    "many words": [container(*(f"--flag-{number}=1" for number in range(5000)))],
    "odd signs": [container("--tp=3", "--served-model-name=\x1b[31m\u202e\ud800</pre>", "--host=$(rm -rf /)")],
    "grown": [{"name": "x", "command": ["sh", "-c", "A=x; " + "A=$A$A; " * 60 + "sglang serve --model-path $A"]}],
    "wrong types": [
        {"name": 3, "image": ["sglang"], "command": {"a": "sglang"}, "args": [None, 3, {"--model-path": 1}]}
    ],
    "many variables": [container(env=[{"name": f"V{number}", "value": "$(V0)" * 50} for number in range(800)])],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_object_is_answered_in_time(judging: Judge, name: str) -> None:
    stored = made("Pod", container())
    stored["spec"]["containers"] = HOSTILE[name]
    start = time.process_time()
    given = answered(judging, review(stored))
    assert time.process_time() - start < 10
    said = json.dumps(given, ensure_ascii=False)
    assert len(said) < 8000
    assert not any(sign in said for sign in ("\x1b", "\u202e", "\ud800"))


def test_no_path_of_an_object_is_read_here(judging: Judge, tmp_path: Path, touched: list[str]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["QwenForSecrets"], "model_type": "hidden"}')
    (folder / "args.yaml").write_text("tp-size: 3\n")
    up = "../" * 20 + str(folder).lstrip("/")
    shell = f"A={folder.parent}; sglang serve --model-path $A/model --chat-template {folder}/config.json"
    objects = [
        made("Pod", container(model=str(folder))),
        made("Pod", container(model=up)),
        made("Pod", container(model=f"x/{up}")),
        made("Pod", container(f"--config={folder}/args.yaml")),
        made("Pod", container(f"--tokenizer-path={folder}", f"--speculative-draft-model-path={folder}")),
        made("Pod", container(f"--lora-paths=a={folder}", f'--json-model-override-args={{"a": "{folder}"}}')),
        made("Pod", container(env=[{"name": "HF_HOME", "value": str(folder)}])),
        made("Pod", container() | {"command": ["bash", "-c", shell], "args": []}),
        made("Pod", container("--served-model-name=${oc.env:HOME}")),
    ]
    judging.answer("warm", asked(review(made("Pod", container("--port=31000")))).manifest)
    _WATCHED[:] = [str(tmp_path)]
    said = [answered(judging, review(stored)) for stored in objects]
    assert touched == []
    assert "QwenForSecrets" not in str(said)
    assert "tp_size" not in str(said[3])
    assert ".of-another-machine" not in str(said)


def test_over_https_and_what_it_refuses(tmp_path: Path, judging: Judge) -> None:
    with webhook(tmp_path, judging) as (server, cert, said):
        client = Client(server.server_address[1], cert)
        status, found = client.post(review(made("Deployment", container("--tp=3"))))
        assert (status, found["response"]["allowed"]) == (200, False)
        assert said == [f"denied: {found['response']['status']['message']}"]
        assert client.post(review(made("Deployment", container("--tp=2"))))[1]["response"]["allowed"]
        assert client.post(b"not json")[0] == 400
        client.connection.request("GET", "/healthz")
        assert client.connection.getresponse().read() == b"{}"
        big = Client(server.server_address[1], cert)
        big.connection.putrequest("POST", "/validate")
        big.connection.putheader("Content-Length", str(4 << 20))
        big.connection.endheaders()
        assert big.connection.getresponse().status == 413
        chunked = Client(server.server_address[1], cert)
        chunked.connection.putrequest("POST", "/")
        chunked.connection.putheader("Transfer-Encoding", "chunked")
        chunked.connection.endheaders()
        assert chunked.connection.getresponse().status == 411


def test_clients_that_wait_stop_nobody(tmp_path: Path, judging: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_SOCKET_S", 1.0)
    with webhook(tmp_path, judging) as (server, cert, _):
        port = server.server_address[1]
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        silent[0].sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
        assert Client(port, cert).post(review(made("Pod", container("--tp=2"))))[0] == 200
        many = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
        deadline = time.monotonic() + 20
        while True:
            try:
                assert Client(port, cert, timeout=5).post(review(made("Pod", container("--tp=2"))))[0] == 200
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        for each in (*silent, *many):
            each.close()


@pytest.mark.thorough
def test_a_review_that_takes_too_long_is_taken_with_a_warning(tmp_path: Path) -> None:
    class Slow(Judge):
        def _judged(self, name: str, manifest: str) -> Answer:
            time.sleep(2)
            return Answer("never in time")

    slow = judge()
    slow.__class__ = Slow
    with webhook(tmp_path, slow) as (server, cert, _):
        client = Client(server.server_address[1], cert)
        start = time.monotonic()
        _, found = client.post(review(made("Pod", container("--tp=3"))), "/validate?timeout=1.5s")
        assert time.monotonic() - start < 1.5
        assert found["response"]["allowed"]
        assert "not judged in time" in found["response"]["warnings"][0]
        for late in ("nan", "inf", "x", "-5s", "0s"):
            assert client.post(review(made("Pod", container("--tp=3"))), f"/validate?timeout={late}")[0] == 200


def test_the_review_behind_thirty_two_that_wait_is_taken_with_a_warning(tmp_path: Path, judging: Judge) -> None:
    server = object.__new__(server_module.Webhook)
    server._judge, server._jobs = judging, server_module.queue.Queue(server_module._MOST_WAITING)
    about = asked(review(made("Pod", container("--tp=3", "--port=31999"))))
    for _ in range(32):
        server._jobs.put_nowait(server_module._Job(about))
    found = server.answered(about, 60)
    assert (found.message, "not judged in time" in found.warnings[0]) == ("", True)
    assert server_module._MOST_CONNECTIONS == 64


def test_a_new_certificate_is_used_without_a_restart(tmp_path: Path, judging: Judge) -> None:
    from tests.gate.cluster import certificate

    with webhook(tmp_path, judging) as (server, _, _):
        time.sleep(0.05)
        cert, _ = certificate(tmp_path)
        assert Client(server.server_address[1], cert).post(review(None, "DELETE"))[0] == 200


def test_memory_is_flat_over_ten_thousand_reviews() -> None:
    class Quick(Judge):
        def _judged(self, name: str, manifest: str) -> Answer:
            return Answer("", (manifest[:200],))

    quick = judge()
    quick.__class__ = Quick
    bodies = [review(made("Pod", container(f"--port={30_000 + number}"))) for number in range(2000)]
    sizes = []
    for turn in range(5):
        for number, body in enumerate(bodies):
            answered(quick, body.replace(b"chat", f"chat-{turn}-{number}".encode()))
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert sizes[-1] - sizes[1] < 10_000  # KiB
    assert len(quick._answers) == 1024
