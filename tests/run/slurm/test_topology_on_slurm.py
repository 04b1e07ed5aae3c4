"""Several servers and the real router as one job of a real Slurm: each on its nodes, and nothing of it stays."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.run.launch.processes import free_port, wait_until
from tests.run.slurm.cluster import Cluster
from tests.run.slurm.running import ROOT, Running
from tests.run.slurm.test_real_slurm import GONE_S, KEY, Serve, all_free, files_with, left_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

ROUTER = f"topology.router.python={sys.executable}"
PD = ("topology=pd", "topology.prefill.nodes=1", "topology.decode.nodes=1", "tp_size=4", ROUTER)
WIDE = ("topology=pd", "topology.decode.args.nnodes=2", "topology.decode.args.tp_size=16", "tp_size=8", ROUTER)


def completion(running: Running, key: str | None = None) -> tuple[int, dict[str, Any]]:
    """A chat completion that goes through the router."""
    return completion_at(running.account()["port"], key)


def completion_at(port: int, key: str | None = None) -> tuple[int, dict[str, Any]]:
    body = {"model": "Qwen/Qwen3-8B", "messages": [{"role": "user", "content": "Hello!"}]}
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if answer.status == 200 else {}
    finally:
        connection.close()


def test_prefill_on_one_node_and_decode_on_another_answer_through_the_router(
    cluster: Cluster, serve: Serve, fake_python: Path
) -> None:
    running = serve(*PD, "api_key=${oc.env:MY_KEY}", MY_KEY=KEY).ready()
    assert "NumNodes=2" in cluster.ask("scontrol", "show", "job", running.job())
    first, second = running.account()["nodes"]
    assert completion(running)[0] == 401
    status, answer = completion(running, KEY)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "hello"
    topology = json.loads((running.folder / "topology.json").read_text())
    prefill, decode = topology["servers"]
    assert (topology["nodes"], prefill["nodes"], decode["nodes"]) == (2, [0], [1])
    # The decode server answered, on the second node, and knows where the prefill server's KV cache is.
    assert answer["node"] == second
    assert answer["bootstrap"]["bootstrap_host"] == "127.0.0.1"
    assert answer["bootstrap"]["bootstrap_port"] == 8998
    assert f"node={first}" in (running.folder / "prefill-0" / "server.log").read_text()
    for name in ("prefill 0", "decode 0", "router"):
        assert f"[{name}] " in running.printed
    assert "prefill 0, decode 0" in running.printed
    assert "as planned" in running.printed
    assert files_with(KEY, cluster.folder / "state", cluster.folder / "spool", running.folder) == []
    assert running.ended(signal.SIGINT) == 130
    assert all_free(cluster, fake_python)
    assert nobody_routes(running)


def test_a_decode_server_on_two_nodes_meets_at_its_own_head(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve(*WIDE).ready()
    nodes = running.account()["nodes"]
    status, answer = completion(running)
    assert (status, answer["node"], len(nodes)) == (200, nodes[1], 3)
    assert answer["ranks"] == [f"1 {nodes[2]} 0,1,2,3,4,5,6,7"]
    assert "0: The server is fired up" in (running.folder / "decode-0" / "server.log").read_text()
    assert running.ended(signal.SIGTERM) == 130
    assert all_free(cluster, fake_python)


def test_two_servers_share_a_node_and_its_memory(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("topology=replicas", "replicas=2", "tp_size=4", "launch.slurm.mem=1G", ROUTER).ready()
    assert len(running.account()["nodes"]) == 1
    assert completion(running)[0] == 200
    assert running.ended(signal.SIGINT) == 130
    assert all_free(cluster, fake_python)


def test_replicas_go_on_when_one_is_gone_and_end_when_the_last_is(
    cluster: Cluster, serve: Serve, fake_python: Path
) -> None:
    running = serve("topology=replicas", "replicas=2", "topology.nodes=2", "tp_size=8", ROUTER).ready()
    for index in range(2):
        port = json.loads((running.folder / f"replica-{index}" / "plan.json").read_text())["values"]["port"]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/die")
        with pytest.raises((OSError, http.client.HTTPException)):
            connection.getresponse()
        connection.close()
        if index == 0:
            running.until("requests go on through replica 1")
            assert wait_until(lambda: completion(running)[0] == 200, GONE_S)
    assert running.ended() == 4
    assert "TOP021" in running.printed
    assert all_free(cluster, fake_python)


def test_one_that_does_not_start_ends_all_with_its_diagnosis(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve(*WIDE, "+engine.env.FAKE_FAULT=memory", "+engine.env.FAKE_FAULT_RANK='1'")
    assert running.ended() == 4
    assert "decode 0: the server failed to start" in " ".join(running.printed.split())
    assert "GPU memory ran out" in running.printed
    assert "Traceback" not in running.printed
    assert all_free(cluster, fake_python)


def test_a_node_that_goes_down_leaves_nothing(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve(*PD).ready()
    cluster.ask("scontrol", "update", f"nodename={running.account()['nodes'][1]}", "state=down", "reason=test")
    assert running.ended() == 4
    assert "SLM013" in running.printed
    assert wait_until(lambda: not left_of(fake_python) and nobody_routes(running), GONE_S)


@pytest.mark.parametrize("how", ["scancel", "killed"])
def test_a_job_that_is_cancelled_leaves_nothing(cluster: Cluster, serve: Serve, fake_python: Path, how: str) -> None:
    running = serve(*PD).ready()
    if how == "scancel":
        cluster.ask("scancel", running.job())
        assert running.ended() == 4
        assert "SLM015" in running.printed
    else:
        running.process.kill()
        running.process.wait()
    assert all_free(cluster, fake_python)
    assert wait_until(lambda: nobody_routes(running), GONE_S)


def test_the_exported_script_serves_and_ends_with_its_job(
    cluster: Cluster, fake_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    words = ["gpu=h200", "model=qwen3_8b", "engine.version=0.5.2", *WIDE, f"port={port}", "api_key=${oc.env:MY_KEY}"]
    script = tmp_path / "job.sh"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "MY_KEY": KEY}
    made = [sys.executable, "serve.py", "export", "slurm", *words, "-o", str(script)]
    assert subprocess.run(made, cwd=ROOT, env=environment, timeout=100).returncode == 0
    given = {"SGLANG_PYTHON": str(fake_python), "SGLANG_API_KEY": KEY}
    submit = ["sbatch", "--parsable", f"--output={tmp_path}/out.txt", str(script)]
    done = subprocess.run(submit, env={**os.environ, **given}, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

    def status() -> int:
        try:
            return completion_at(port, KEY)[0]
        except OSError:
            return 0

    assert wait_until(lambda: status() == 200, GONE_S), (tmp_path / "out.txt").read_text()[-4000:]
    answer = completion_at(port, KEY)[1]
    assert answer["node"] == "node2"
    assert answer["ranks"] == ["1 node3 0,1,2,3,4,5,6,7"]
    cluster.ask("scancel", done.stdout.strip())
    assert all_free(cluster, fake_python)
    assert wait_until(lambda: not listens(port), GONE_S)


def nobody_routes(running: Running) -> bool:
    """Whether nobody listens on the router's port any more."""
    return not listens(running.account()["port"])


def listens(port: int) -> bool:
    try:
        http.client.HTTPConnection("127.0.0.1", port, timeout=5).connect()
    except ConnectionRefusedError:
        return False
    return True
