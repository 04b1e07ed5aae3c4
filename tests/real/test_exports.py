"""Exports against the real SGLang: its own parser, its own argument class, its own --config, and a server."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sglang_hydra.convert.export.job import job_of
from sglang_hydra.convert.export.registry import render
from sglang_hydra.facts.tiny import ensure_tiny
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.errors import ConfigError
from tests.convert.export.exports import HOSTILE, plan_of, with_intent
from tests.real.servers import READY_S, SGLANG_ON_CPU, STOP_S, words_of
from tests.run.launch.processes import free_port

ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
ON_CPU = ("gpu=cpu", "model=tiny", "random_seed=7")
PLANS = {
    "nothing else": (),
    "sizes and switches": ("tp_size=2", "mem_fraction_static=0.5", "enable_metrics=true", "page_size=16"),
    "lists": ("bucket_time_to_first_token=[0.1,1.0]", "enable_metrics=true"),
    "adapters": ("lora_paths=['one=/a',{lora_name: two, lora_path: /b}]", "max_loras_per_batch=2"),
    "JSON": ("json_model_override_args='{\"max_position_embeddings\": 64}'", "context_length=32"),
    "another node": ("tp_size=2", "nnodes=2", "node_rank=1", "dist_init_addr=10.0.0.1:5000"),
}
KEY = "sk-not'for\\anyone-4711"


def plans() -> dict[str, Plan]:
    named = {name: plan_of(*ON_CPU, *overrides) for name, overrides in PLANS.items()}
    return {**named, **{name: with_intent(plan_of(*ON_CPU), served_model_name=text) for name, text in HOSTILE.items()}}


def asked(python: str, folder: Path, *, config: bool) -> dict[str, dict[str, dict[str, str]]]:
    """What that SGLang holds for each plan, by the way in which it was told."""
    ensure_tiny()
    cases: dict[str, dict[str, Any]] = {}
    for number, (name, plan) in enumerate(plans().items()):
        argv = json.loads(render("argv", job_of(plan, ())).text)
        node = plan.values["node_rank"]
        file = folder / f"{number}.yaml"
        with contextlib.suppress(ConfigError):
            file.write_text(plan.as_yaml(node), encoding="utf-8")
        kwargs = json.loads(render("engine-kwargs", job_of(plan, ())).text)
        cases[name] = {
            "argv": argv[node] if plan.values["nnodes"] > 1 else argv,
            "kwargs": kwargs[node] if plan.values["nnodes"] > 1 else kwargs,
            "config": str(file) if config and file.is_file() else None,
        }
    run = subprocess.run(
        [python, str(Path(__file__).with_name("ask_bridges.py"))],
        input=json.dumps(list(cases.values())),
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **ENVIRONMENT},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return dict(zip(cases, map(json.loads, run.stdout.splitlines()), strict=True))


def test_flags_and_keyword_arguments_are_the_same_to_sglang(sglang_python: str, tmp_path: Path) -> None:
    for name, answer in asked(sglang_python, tmp_path, config=False).items():
        assert answer["argv"] == answer["kwargs"], name
        assert answer["argv"]["served_model_name"] == repr(plans()[name].values["served_model_name"]), name
        assert answer["argv"]["random_seed"] == "7"


def test_its_config_file_says_the_same_as_its_flags(sglang_0_5_23_python: str, tmp_path: Path) -> None:
    answers = asked(sglang_0_5_23_python, tmp_path, config=True)
    compared = [answer for answer in answers.values() if "config" in answer]
    # Adapters and values that begin with a dash cannot be in such a file.
    assert len(compared) == len(answers) - 3
    for name, answer in answers.items():
        assert answer.get("config", answer["argv"]) == answer["argv"], name


@contextlib.contextmanager
def running(script: Path, folder: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "printed.txt").open("wb") as printed:
        process = subprocess.Popen(
            ["bash", str(script)], env={**os.environ, **ENVIRONMENT, **env}, stdout=printed, stderr=printed
        )
    try:
        yield process
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        for left in [child for child in children if child.is_running()]:
            left.kill()
        process.kill()
        process.wait()


def ask(port: int, path: str, key: str | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        return connection.getresponse().status
    finally:
        connection.close()


def wait_until_healthy(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        assert process.poll() is None, (folder / "printed.txt").read_text()[-4000:]
        assert time.monotonic() < deadline, (folder / "printed.txt").read_text()[-4000:]
        with contextlib.suppress(OSError):
            if ask(port, "/health") == 200:
                return
        time.sleep(0.5)


@pytest.mark.parametrize("release", ["0.5.2", "0.5.23"])
def test_a_script_serves_with_a_key_that_nobody_sees(
    release: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    python = request.getfixturevalue("sglang_python" if release == "0.5.2" else "sglang_0_5_23_python")
    port = free_port()
    plan = plan_of(*ON_CPU, *SGLANG_ON_CPU, f"port={port}", 'api_key="k"')
    ensure_tiny()
    script = tmp_path / "serve.sh"
    script.write_text(render("shell", job_of(plan, ())).text)
    with running(script, tmp_path, {"SGLANG_PYTHON": python, "SGLANG_API_KEY": KEY}) as process:
        wait_until_healthy(process, port, tmp_path)
        assert ask(port, "/v1/models") == 401
        assert ask(port, "/v1/models", KEY) == 200
        server = psutil.Process(process.pid)
        assert not any(KEY in word for word in words_of([server, *server.children(recursive=True)]))
    printed = (tmp_path / "printed.txt").read_text(errors="replace")
    assert "server_args=" in printed
    assert KEY not in printed
    assert repr(KEY)[1:-1] not in printed
