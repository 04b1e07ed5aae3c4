"""The webhook of docs/admission.md behind a real API server: what kubectl prints, and what is stored.

It needs etcd, kubectl and a kube-apiserver: ``KUBE_APISERVER=/path pytest -m real tests/gate/test_api_server.py``."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gate.cluster import container, judge, made, webhook
from tests.plans import without_accelerator, without_engines
from tests.readme import REPOSITORY
from tests.run.launch.processes import free_port, wait_until

PROGRAM = os.environ.get("KUBE_APISERVER", "")
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PROGRAM or not shutil.which("etcd") or not shutil.which("kubectl"), reason="KUBE_APISERVER"),
]
Kubectl = Callable[..., tuple[int, str]]
TOKEN = "ada-token"
"""Of the one user of this API server."""
BAD = made("Deployment", container("--tp", "3"), "bad")
RESOURCE: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "leaderworkersets.leaderworkerset.x-k8s.io"},
    "spec": {
        "group": "leaderworkerset.x-k8s.io",
        "names": {"kind": "LeaderWorkerSet", "plural": "leaderworkersets", "singular": "leaderworkerset"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@contextlib.contextmanager
def program(folder: Path, name: str, *words: str) -> Iterator[None]:
    with (folder / f"{Path(name).name}.log").open("wb") as log:
        process = subprocess.Popen([name, *words], stdout=log, stderr=log, cwd=folder)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def api_server(folder: Path) -> Iterator[Kubectl]:
    """A cluster of etcd and an API server, without nodes; yields kubectl."""
    store, peers, port = free_port(), free_port(), free_port()
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True, timeout=60)
    (folder / "tokens.csv").write_text(f'{TOKEN},ada,ada,"system:masters"\n')
    url, at = f"http://127.0.0.1:{store}", f"https://127.0.0.1:{port}"
    etcd = ["--data-dir", str(folder / "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url]
    etcd += ["--listen-peer-urls", f"http://127.0.0.1:{peers}"]
    flags = {
        "etcd-servers": url,
        "cert-dir": folder / "certs",
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "service-cluster-ip-range": "10.0.0.0/24",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "token-auth-file": folder / "tokens.csv",
        "authorization-mode": "AlwaysAllow",
        "disable-admission-plugins": "ServiceAccount",
    }

    def kubectl(*words: str, given: Mapping[str, Any] | None = None) -> tuple[int, str]:
        command = ["kubectl", f"--server={at}", "--insecure-skip-tls-verify", f"--token={TOKEN}", *words]
        home = {**os.environ, "HOME": str(folder), "KUBECONFIG": str(folder / "none")}
        done = subprocess.run(
            command, input=json.dumps(given or {}), capture_output=True, text=True, timeout=60, env=home
        )
        return done.returncode, done.stdout + done.stderr

    def is_ready() -> bool:
        with contextlib.suppress(OSError):
            asking = urllib.request.Request(f"{at}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            with urllib.request.urlopen(asking, timeout=5, context=ssl._create_unverified_context()) as answer:
                return bool(answer.status == 200)
        return False

    with (
        program(folder, "etcd", *etcd),
        program(folder, PROGRAM, *(f"--{name}={each}" for name, each in flags.items())),
    ):
        wait_until(is_ready, 180)
        yield kubectl


def configuration(url: str, cert: Path) -> dict[str, Any]:
    """The webhook's configuration of docs/admission.md, for a webhook outside of the cluster."""
    text = (REPOSITORY / "docs" / "admission.md").read_text(encoding="utf-8")
    blocks = [part for block in re.findall(r"```yaml\n(.*?)```", text, re.S) for part in yaml.safe_load_all(block)]
    found: dict[str, Any] = next(part for part in blocks if part["kind"] == "ValidatingWebhookConfiguration")
    found["webhooks"][0]["clientConfig"] = {"url": url, "caBundle": base64.b64encode(cert.read_bytes()).decode()}
    found["webhooks"][0]["failurePolicy"] = "Fail"
    return found


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("cluster")
    patch = pytest.MonkeyPatch()
    without_engines(patch)
    without_accelerator(patch)
    (folder / "tls").mkdir()
    with api_server(folder) as kubectl, webhook(folder / "tls", judge()) as (server, cert, _):
        assert kubectl("create", "namespace", "llm")[0] == 0
        assert kubectl("create", "-f", "-", given=RESOURCE)[0] == 0
        assert kubectl("wait", "--for=condition=established", "crd", RESOURCE["metadata"]["name"])[0] == 0
        url = f"https://127.0.0.1:{server.server_address[1]}/validate"
        code, text = kubectl("create", "-f", "-", given=configuration(url, Path(cert)))
        assert code == 0, text
        # The API server reads a new configuration a moment later.
        assert wait_until(lambda: kubectl("create", "--dry-run=server", "-f", "-", given=BAD)[0] != 0, 30)
        yield kubectl
    patch.undo()


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "StatefulSet", "Job", "LeaderWorkerSet"])
def test_a_server_that_cannot_start_is_denied_and_one_that_can_is_stored(kubectl: Kubectl, kind: str) -> None:
    name = f"chat-{kind.lower()}"
    code, text = kubectl("create", "-f", "-", given=made(kind, container("--tp", "3"), name))
    assert code == 1
    start = f'admission webhook "check.sglang-hydra.local" denied the request: {kind} {name} cannot be launched: CFG004'
    assert start in text
    assert "tp_size may be 1, 2, 4" in text
    assert kubectl("get", "-n", "llm", kind, name)[0] == 1
    code, text = kubectl("create", "-f", "-", given=made(kind, container("--tp", "4"), name))
    assert code == 0, text
    assert kubectl("get", "-n", "llm", kind, name)[0] == 0


def test_kubectl_shows_a_warning_and_stores_the_object(kubectl: Kubectl) -> None:
    deprecated = container("--tp", "4", "--enable-ep-moe", image="lmsysorg/sglang:v0.5.2")
    code, text = kubectl("create", "-f", "-", given=made("Deployment", deprecated, "warned"))
    assert code == 0, text
    assert "Warning: DEP" in text


def test_a_change_of_a_stored_server_is_judged_too(kubectl: Kubectl) -> None:
    assert kubectl("create", "-f", "-", given=made("Deployment", container("--tp", "2"), "changed"))[0] == 0
    code, text = kubectl("replace", "-f", "-", given=made("Deployment", container("--tpsize", "2"), "changed"))
    assert code == 1
    assert "ARG010" in text
    code, text = kubectl("get", "-n", "llm", "deployment", "changed", "-o", "json")
    assert json.loads(text)["spec"]["template"]["spec"]["containers"][0]["args"][-2:] == ["--tp", "2"]
    assert kubectl("scale", "-n", "llm", "deployment", "changed", "--replicas=3")[0] == 0


def test_an_object_without_a_server_passes(kubectl: Kubectl) -> None:
    other = {"name": "web", "image": "nginx:1.27", "args": ["--tp", "3"]}
    code, text = kubectl("create", "-f", "-", given=made("Pod", other, "web"))
    assert (code, text.strip()) == (0, "pod/web created")
