"""Starting ``python serve.py`` for real, talking to it, and seeing that it ends without a trace."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.run.launch.processes import free_port

ROOT = Path(__file__).parents[2]
READY_S = 180.0
STOP_S = 40.0
# What has been waited for is gone already; a busy machine may still be collecting it.
GONE_S = 20.0

# Without a GPU, its kernels and compiled grammars, SGLang 0.5.2 serves with these.
SGLANG_ON_CPU = [
    "attention_backend=torch_native",
    "grammar_backend=none",
    "disable_overlap_schedule=true",
    "disable_radix_cache=true",
    "dtype=float32",
    "mem_fraction_static=0.3",
    "max_total_tokens=8192",
    "+engine.env.TORCHDYNAMO_DISABLE=1",
]


@dataclass
class Served:
    """A running ``serve.py``: where it answers, its run folder, and what it printed once it has ended.

    ``program`` is None for a server that was detached."""

    program: subprocess.Popen[bytes] | None
    port: int
    folder: Path
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json", **self.headers, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def chat(self, **settings: Any) -> tuple[int, bytes]:
        messages = [{"role": "user", "content": "Tell me something."}]
        return self.request("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 16, **settings})

    def plan(self) -> dict[str, Any]:
        """The plan that was launched, as it lies in the run folder."""
        content: dict[str, Any] = json.loads((self.folder / "plan.json").read_text())
        return content

    def processes(self) -> list[psutil.Process]:
        """The program and everything that it started, directly or not."""
        assert self.program is not None
        program = psutil.Process(self.program.pid)
        return [program, *program.children(recursive=True)]

    @property
    def printed(self) -> str:
        return (self.folder.parent / "printed.txt").read_text(errors="replace")


@contextlib.contextmanager
def served(folder: Path, *overrides: str, env: dict[str, str] | None = None) -> Iterator[Served]:
    """``python serve.py OVERRIDES`` while the block lasts: ready when it begins, interrupted at its end."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "run"
    argv = [sys.executable, "serve.py", f"port={port}", f"hydra.run.dir={run}", *overrides]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", **(env or {})}
    with (folder / "printed.txt").open("wb") as printed:
        program = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=printed, stderr=printed)
    server = Served(program, port, run)
    try:
        _wait_ready(server)
        yield server
    finally:
        if program.poll() is None:
            program.send_signal(signal.SIGINT)
            try:
                program.wait(STOP_S)
            finally:
                program.kill()


def _wait_ready(server: Served) -> None:
    deadline = time.monotonic() + READY_S
    while "Ready after" not in server.printed:
        assert server.program.poll() is None, f"it ended with {server.program.returncode}:\n{server.printed[-4000:]}"
        assert time.monotonic() < deadline, f"not ready after {READY_S} s:\n{server.printed[-4000:]}"
        time.sleep(0.1)


def interrupt(server: Served, number: signal.Signals = signal.SIGINT) -> int:
    """Sends one signal to the program alone, as Ctrl-C or a supervisor does; its exit code."""
    server.program.send_signal(number)
    return server.program.wait(STOP_S)


def words_of(processes: list[psutil.Process]) -> list[str]:
    """The words of their command lines; none of one that has ended meanwhile."""
    words: list[str] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            words += process.cmdline()
    return words


def all_gone(processes: list[psutil.Process], seconds: float) -> bool:
    """Whether every one of them has ended in time. One that is dead and whom nobody has collected yet has ended."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return not any(_lives(process) for process in alive)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
