"""The real SGLang on the CPU: 0.5.2 served by us, guarded by a key, and found to run with the plan's values; a late
release, detached and stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from sglang_hydra.arguments.fields import fresh_defaults
from tests.real.servers import (
    GONE_S,
    READY_S,
    ROOT,
    SGLANG_ON_CPU,
    Served,
    all_gone,
    interrupt,
    served,
    words_of,
)
from tests.run.launch.processes import wait_until

KEY = "sk-not'for\\anyone-4711"
OURS = [sys.executable, "serve.py"]
# The promise for a server that is well.
MOST_TO_STOP_S = 15


def reported(answer: bytes) -> dict[str, Any]:
    """The arguments that the server reports, its key replaced before anything else sees it."""
    info: dict[str, Any] = json.loads(answer)
    info["api_key"] = None if info["api_key"] is None else "set"
    return {name: info[name] for name in fresh_defaults()}


def planned(plan: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = dict(plan["values"])
    values["api_key"] = None if values["api_key"] is None else "set"
    return values


def test_a_guarded_server_runs_as_planned_and_leaves_nothing(sglang_python: str, tmp_path: Path) -> None:
    overrides = ["engine=sglang", f"engine.python={sglang_python}", "model=tiny", "gpu=cpu", *SGLANG_ON_CPU]
    overrides += ["api_key=${oc.env:MY_KEY}", "log_requests=true"]
    with served(tmp_path, *overrides, env={"MY_KEY": KEY}) as server:
        assert server.chat()[0] == 401
        assert server.chat(model="tiny")[0] == 401
        assert server.request("GET", "/health")[0] == 200

        server.headers["Authorization"] = f"Bearer {KEY}"
        status, answer = server.chat()
        assert status == 200
        assert json.loads(answer)["choices"][0]["message"]["content"]

        status, answer = server.request("GET", "/get_server_info")
        assert status == 200
        assert reported(answer) == planned(server.plan())

        processes = server.processes()
        assert len(processes) >= 5
        # The variable of the one who asked is inherited; no command line has the key.
        assert not any(KEY in word for word in words_of(processes))
        assert interrupt(server) == 130
        assert all_gone(processes, GONE_S)
    _no_key_in(tmp_path, {"plan.json", "server.log", "printed.txt"})
    assert "api_key='***'" in server.printed


def test_another_server_runs_as_planned_and_dies_with_us(sglang_python: str, tmp_path: Path) -> None:
    overrides = ["engine=sglang", f"engine.python={sglang_python}", "model=tiny", "gpu=cpu", *SGLANG_ON_CPU]
    overrides += ["chunked_prefill_size=512", "max_running_requests=4", "schedule_policy=fcfs", "stream_interval=2"]
    overrides += ["enable_metrics=true", "bucket_time_to_first_token=[0.1,1]", "served_model_name=other"]
    overrides += ["context_length=4096", "random_seed=11", "watchdog_timeout=100", "skip_server_warmup=true"]
    with served(tmp_path, *overrides) as server:
        status, answer = server.chat(model="other", stream=True)
        assert status == 200
        assert answer.rstrip().endswith(b"[DONE]")
        status, answer = server.request("GET", "/get_server_info")
        assert reported(answer) == planned(server.plan())
        processes = server.processes()
        server.program.kill()
        assert all_gone(processes, GONE_S)


def test_a_server_that_cannot_start_ends_in_4_with_its_reason(sglang_python: str, tmp_path: Path) -> None:
    """Its grammar backend is not installed: SGLang finds out while it starts."""
    settings = [word for word in SGLANG_ON_CPU if not word.startswith("grammar_backend")]
    overrides = ["engine=sglang", f"engine.python={sglang_python}", "model=tiny", "gpu=cpu", *settings]
    argv = [sys.executable, "serve.py", "grammar_backend=xgrammar", "port=0", f"hydra.run.dir={tmp_path}", *overrides]
    root = Path(__file__).parents[2]
    before = {process.pid for process in psutil.process_iter()}
    run = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=300, env={**os.environ})
    assert run.returncode == 4, run.stderr[-3000:]
    assert "ENG008" in run.stderr
    assert "DIA050" in run.stderr
    assert "Traceback" not in run.stderr.rpartition("ENG008")[2]
    left = [process for process in psutil.process_iter(["name"]) if process.pid not in before]
    assert not [process for process in left if "sglang" in process.info["name"]]


def _no_key_in(folder: Path, among: set[str]) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert among <= {path.name for path in files}
    for path in files:
        content = path.read_text(errors="replace")
        assert KEY not in content, path
        assert repr(KEY)[1:-1] not in content, path


def test_a_late_release_stays_when_the_command_has_returned_and_is_stopped(
    sglang_0_5_23_python: str, tmp_path: Path
) -> None:
    settings = ["attention_backend=torch_native", "disable_radix_cache=true", "max_total_tokens=8192"]
    overrides = ["engine=sglang", f"engine.python={sglang_0_5_23_python}", "model=tiny", "gpu=cpu", *settings]
    overrides += ["api_key=${oc.env:MY_KEY}", "log_requests=true"]
    argv = [*OURS, "launch.detach=true", "port=0", f"hydra.run.dir={tmp_path / 'run'}", *overrides]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "SGLANG_HYDRA_STATE_DIR": str(tmp_path / "state")}
    environment["MY_KEY"] = KEY

    def ran(*argv: str) -> str:
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout + done.stderr

    try:
        said = ran(*argv)
        # What it really prints, in its order.
        told = [line.split(" s  ", 1)[1] for line in said.splitlines() if re.match(r" *[0-9.]+ s  ", line)]
        assert told == [
            *("reading its arguments", "joining its ranks", "loading weights", "weights loaded"),
            *("KV cache allocated", "warming up", "answering"),
        ]
        (server,) = json.loads(ran(*OURS, "status", "--json"))["servers"]
        assert (server["condition"], server["engine"]) == ("ready", "sglang 0.5.23")
        served_here = Served(None, int(server["url"].rpartition(":")[2]), tmp_path / "run")
        assert served_here.chat(model="tiny")[0] == 401
        served_here.headers["Authorization"] = f"Bearer {KEY}"
        status, answer = served_here.chat(model="tiny", stream=True)
        assert status == 200
        assert answer.rstrip().endswith(b"[DONE]")
        supervisor = psutil.Process(server["process"]["pid"])
        processes = [supervisor, *supervisor.children(recursive=True)]
        assert len(processes) >= 5
        assert "The server is fired up" in ran(*OURS, "logs")
    finally:
        stopped = ran(*OURS, "stop", "all", "--json")
    (end,) = json.loads(stopped)["servers"]
    assert end["how"] == "stopped"
    assert end["seconds"] < MOST_TO_STOP_S
    assert all_gone(processes, GONE_S)
    _no_key_in(tmp_path, {"plan.json", "server.log"})


def test_hanging_up_while_it_starts_leaves_nothing(sglang_python: str, tmp_path: Path) -> None:
    overrides = ["engine=sglang", f"engine.python={sglang_python}", "model=tiny", "gpu=cpu", *SGLANG_ON_CPU]
    argv = [sys.executable, "serve.py", "port=0", f"hydra.run.dir={tmp_path / 'run'}", *overrides]
    program = subprocess.Popen(argv, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    ours = psutil.Process(program.pid)
    processes: list[psutil.Process] = []

    def has_a_scheduler() -> bool:
        """Its weights are not loaded yet then."""
        processes[:] = [ours, *ours.children(recursive=True)]
        return len(processes) >= 5

    assert wait_until(has_a_scheduler, READY_S)
    program.send_signal(signal.SIGHUP)
    assert program.wait(60) == 130
    assert all_gone(processes, GONE_S)
