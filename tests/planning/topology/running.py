"""``python serve.py topology=...`` with fake servers and the real router: started, talked to, and seen to end."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.run.launch.processes import free_port

ROOT = Path(__file__).parents[3]
ROUTER_PYTHON = os.environ.get("ROUTER_PYTHON", sys.executable)
"""An interpreter that has sglang-router: ours, as the development tools bring it."""
DEADLINE_S = 90.0
READY = "Ready after"


@dataclass
class Running:
    """A running ``serve.py`` and its run folder."""

    program: subprocess.Popen[bytes]
    folder: Path
    printed_file: Path

    @property
    def printed(self) -> str:
        return self.printed_file.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, words: str) -> None:
        """Until the program has printed ``words``; fails when it ends before or takes too long."""
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.printed:
            assert self.program.poll() is None, f"ended with {self.program.returncode}:\n{self.printed}"
            assert time.monotonic() < deadline, f"no {words!r} in time:\n{self.printed}"
            time.sleep(0.05)

    def topology(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "topology.json").read_text(encoding="utf-8"))
        return content

    @property
    def router_port(self) -> int:
        return int(self.topology()["router"]["port"])

    def ports(self, role: str | None = None) -> list[int]:
        """The HTTP ports of the servers."""
        servers = self.topology()["servers"]
        return [server["plan"]["values"]["port"] for server in servers if role in (None, server["role"])]

    def processes(self) -> list[psutil.Process]:
        """Everything that it started, directly or not."""
        return psutil.Process(self.program.pid).children(recursive=True)

    def end(self, number: int = signal.SIGINT) -> int:
        """Its exit code after a signal."""
        self.program.send_signal(number)
        return self.program.wait(DEADLINE_S)


@contextlib.contextmanager
def running(folder: Path, python: Path, *overrides: str, **env: str) -> Iterator[Running]:
    """``serve.py`` with fake servers while the block lasts."""
    run, printed = folder / "run", folder / "printed.txt"
    argv = [
        *(sys.executable, "serve.py", "gpu=cpu", "model=tiny", "engine=sglang", f"engine.python={python}", "port=0"),
        *("attention_backend=torch_native", "grammar_backend=none", f"topology.router.python={ROUTER_PYTHON}"),
        # The router takes it long after it was found free, and others that are started meanwhile find it free, too.
        f"topology.router.prometheus_port={free_port()}",
        *("launch.ready_timeout=60", "topology.router.ready_timeout=60", f"hydra.run.dir={run}", *overrides),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(folder / "cache"), **env}
    with printed.open("wb") as out:
        program = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        yield Running(program, run, printed)
    finally:
        if program.poll() is None:
            program.send_signal(signal.SIGTERM)
            try:
                program.wait(DEADLINE_S)
            finally:
                program.kill()
                program.wait()


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    """Status and body of an answer of 127.0.0.1."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def streamed(port: int, **headers: str) -> list[str]:
    """The words of a streamed answer, with the port of the server that gave it first. Fails unless it is whole."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello!"}], "stream": True}
    status, content = ask(port, "POST", "/v1/chat/completions", body, **headers)
    assert status == 200, content
    events = [line.removeprefix("data: ") for line in content.decode().splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]", events
    return [json.loads(event)["choices"][0]["delta"]["content"] for event in events[:-1]]


def nothing_left(processes: list[psutil.Process], ports: list[int]) -> bool:
    """Whether these processes are gone and nobody listens on these ports, waiting for it a while."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if not any(map(_is_alive, processes)) and not any(_listens(port) for port in ports):
            return True
        time.sleep(0.05)
    return False


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
