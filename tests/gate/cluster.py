"""What an API server sends: objects that start SGLang, the reviews of them, and a client with a certificate."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.admission.reviews import Judge
from sglang_hydra.convert.admission.server import Webhook

IMAGE = "lmsysorg/sglang:v0.5.9"
GPU = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def container(*flags: str, model: str = "Qwen/Qwen3-8B", **more: Any) -> dict[str, Any]:
    words = ["python3", "-m", "sglang.launch_server"]
    return {"name": "server", "image": IMAGE, "command": words, "args": ["--model-path", model, *flags], **more}


def made(kind: str, server: Mapping[str, Any], name: str = "chat") -> dict[str, Any]:
    """An object of a kind with the one container, as ``kubectl apply`` sends it."""
    pod = {"nodeSelector": GPU, "containers": [dict(server)]}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    scaled = {"selector": {"matchLabels": {"app": name}}, "template": template}
    versions = {"Pod": "v1", "Job": "batch/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1"}
    leaders = {"size": 1, "leaderTemplate": template, "workerTemplate": template}
    spec = {
        "Pod": pod,
        "Job": {"template": {"spec": {**pod, "restartPolicy": "Never"}}},
        "LeaderWorkerSet": {"leaderWorkerTemplate": leaders},
    }
    metadata = {"name": name, "namespace": "llm", "managedFields": [{"manager": "kubectl"}]}
    about = {"apiVersion": versions.get(kind, "apps/v1"), "kind": kind, "metadata": metadata}
    return {**about, "spec": spec.get(kind, scaled), "status": {}}


def review(stored: Mapping[str, Any] | None, operation: str = "CREATE", **more: Any) -> bytes:
    """An AdmissionReview of admission.k8s.io/v1 with every field that an API server sets."""
    group, _, version = str((stored or {}).get("apiVersion", "v1")).rpartition("/")
    kind = {"group": group, "version": version, "kind": (stored or {}).get("kind", "Pod")}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": {"group": group, "version": version, "resource": f"{kind['kind'].lower()}s"},
        "requestKind": kind,
        "name": ((stored or {}).get("metadata") or {}).get("name", ""),
        "namespace": "llm",
        "operation": operation,
        "userInfo": {"username": "ada", "groups": ["system:authenticated"]},
        "object": stored,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        **more,
    }
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


def judge(*overrides: str) -> Judge:
    composer = composer_of(Invocation(verb="admission"))
    composer.only_judges = True
    return Judge(composer, [Request(word, "argument 1") for word in overrides])


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    cert, key = str(folder / "tls.crt"), str(folder / "tls.key")
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
    return cert, key


class Client:
    """Speaks to a webhook as an API server does, on one connection until the webhook ends."""

    opened: ClassVar[list[http.client.HTTPSConnection]] = []

    def __init__(self, port: int, cert: str, timeout: float = 30) -> None:
        context = ssl.create_default_context(cafile=cert)
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=timeout)
        self.opened.append(self.connection)

    def post(self, body: bytes, path: str = "/validate?timeout=10s") -> tuple[int, dict[str, Any]]:
        self.connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


@contextlib.contextmanager
def webhook(folder: Path, judge: Judge) -> Iterator[tuple[Webhook, str, list[str]]]:
    """A webhook on a free port, its certificate, and what it says."""
    said: list[str] = []
    cert, key = certificate(folder)
    server = Webhook("127.0.0.1", 0, cert, key, judge, said.append)
    stop = threading.Event()
    thread = threading.Thread(target=server.judge_forever, args=(stop,))
    thread.start()
    try:
        yield server, cert, said
    finally:
        while Client.opened:
            Client.opened.pop().close()
        stop.set()
        thread.join(30)
        server.shutdown()
        server.server_close()
