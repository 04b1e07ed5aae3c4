"""Sweeps on real engines: each server once, every point measured, nothing measured twice; and our client beside
SGLang's own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from sglang_hydra.facts.tiny import ensure_tiny, tiny_path
from sglang_hydra.measure.bench.bench_serving import BenchServing
from sglang_hydra.measure.bench.point import Builtin, Client, run_point
from sglang_hydra.measure.bench.server import Server
from tests.measure.bench.conftest import FAKE, forgive_slowness, load
from tests.real.servers import ROOT, SGLANG_ON_CPU

pytestmark = pytest.mark.timeout(1200)

DEADLINE_S = 1000
COMPARED = ("output_throughput", "request_throughput", "ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")


def bench(folder: Path, *words: str) -> str:
    """What ``bench -m`` prints, after it has ended well."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "SGLANG_HYDRA_TEST": str(folder)}
    done = subprocess.run(
        [sys.executable, "serve.py", "bench", "-m", "model=tiny", "gpu=cpu", *words, f"sweep.folder={folder}/sweep"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def results(folder: Path) -> dict[str, dict[str, Any]]:
    return {file.parent.name: json.loads(file.read_text()) for file in folder.glob("sweep/points/*/result.json")}


def left_over(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SGLANG_HYDRA_TEST") == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def measured_once(folder: Path, words: list[str], count: int) -> list[dict[str, Any]]:
    said = bench(folder, *words)
    assert len(re.findall(r"server \w+: starting", said)) == 1, said
    first = results(folder)
    assert len(first) == count
    assert left_over(folder) == []
    assert "starting" not in bench(folder, *words)
    assert results(folder) == first
    return list(first.values())


def test_six_points_on_the_embedded_engine_are_one_start_and_a_report(embedded_python: str, tmp_path: Path) -> None:
    words = ["engine=transformers", f"engine.python={embedded_python}", "bench.num_prompts=8", "bench.input_len=64"]
    words += ["bench.concurrency=1,2,4", "bench.output_len=8,16"]
    for record in measured_once(tmp_path, words, 6):
        assert record["measures"]["completed"] == 8, record["reasons"]
        assert record["measures"]["output_tokens"] == 8 * record["workload"]["output_len"]
        assert record["measures"]["input_tokens"] == 8 * 64
    report = subprocess.run(
        [sys.executable, "serve.py", "report", str(tmp_path / "sweep")], cwd=ROOT, capture_output=True, text=True
    )
    assert report.returncode == 0, report.stderr
    assert "<svg" in (tmp_path / "sweep" / "report.html").read_text()


@pytest.mark.parametrize("client", ["bench_serving", "builtin"])
def test_points_on_the_real_sglang_are_one_start(sglang_python: str, tmp_path: Path, client: str) -> None:
    words = ["engine=sglang", f"engine.python={sglang_python}", *SGLANG_ON_CPU, f"bench.client={client}"]
    words += ["bench.concurrency=1,2", "bench.output_len=8,16", "bench.num_prompts=8", "bench.input_len=32"]
    for record in measured_once(tmp_path, words, 4):
        assert record["client"]["name"] == client
        assert record["measures"]["completed"] == 8, record["reasons"]
        assert record["measures"]["output_tokens"] == 8 * record["workload"]["output_len"]
        # Without a prefix cache nothing can come from it; that the server says so means that its metrics were read.
        assert record["server"] is not None
        assert record["cache_hit_rate"] == 0
        assert record["server"]["retracted"] == 0


def test_our_client_and_bench_serving_measure_the_same(sglang_python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one server whose time is known: 320 ms to the first token and 50 ms to each further one. Rounds are
    interleaved, and the best one of each client is compared: what else the machine does only makes them slower."""
    forgive_slowness(monkeypatch)
    ensure_tiny()
    environment = {**os.environ, "FAKE_SGLANG": json.dumps({"decode_ms": 50, "prefill_us": 5000})}
    process = subprocess.Popen(
        [sys.executable, str(FAKE), "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, list[dict[str, Any]]] = {"builtin": [], "bench_serving": []}
    with contextlib.ExitStack() as stack:
        stack.callback(process.communicate)
        stack.callback(process.kill)
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().split()[-1]}"
        server = Server(url, "tiny", "sglang", str(tiny_path()), 2048, flushes=True, python=sglang_python)
        clients: list[Client] = [Builtin(server), BenchServing(server)]
        for client in clients:
            stack.callback(client.close)
        asked = load(input_len=64, output_len=16, concurrency=4, num_prompts=16)
        for repeat in range(1, 6):
            for client in clients:
                result = run_point(server, client, asked, point_id="one", repeat=repeat)
                assert result.state == "valid", result.reasons
                found[client.name].append(result.measures)
    ours, theirs = (best(found[client.name]) for client in clients)
    print(f"builtin {ours}\nbench_serving {theirs}")
    assert ours == pytest.approx(theirs, rel=0.1)
    assert ours["itl_ms"] == pytest.approx(50, rel=0.1)


def best(measured: list[dict[str, Any]]) -> dict[str, float]:
    """The highest throughputs of the rounds, and the lowest of their median latencies."""
    rates = {name: max(one[name] for one in measured) for name in COMPARED if not name.endswith("_ms")}
    return {**rates, **{name: min(one[name]["p50"] for one in measured) for name in COMPARED if name.endswith("_ms")}}
