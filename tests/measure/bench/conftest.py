"""A fake SGLang in a process of its own, and the load that tests put on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.compose.settings.bench import BenchNode
from sglang_hydra.measure.bench import validity
from sglang_hydra.measure.bench.load import Load, load_of
from sglang_hydra.measure.bench.server import Endpoint

FAKE = Path(__file__).with_name("fake_sglang.py")
Start = Callable[..., Endpoint]


def load(**settings: Any) -> Load:
    """A short load: 40 requests of 64 tokens for 8, unless told otherwise."""
    node = asdict(BenchNode(input_len=64, output_len=8, concurrency=4, num_prompts=40, client="builtin"))
    return load_of({**node, **settings})


def forgive_slowness(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow or busy machine a short run makes a client late, or leaves its slots idle for longer
    than its requests take. These rules have cases of their own; elsewhere they would be a matter of luck."""
    monkeypatch.setattr(validity, "SHORTFALL", 0.0)
    monkeypatch.setattr(validity, "OWN_DELAY", 1e9)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts fake servers; all have ended when the test has."""
    forgive_slowness(monkeypatch)
    running: list[subprocess.Popen[str]] = []

    def started(**options: Any) -> Endpoint:
        environment = {**os.environ, "FAKE_SGLANG": json.dumps(options)}
        process = subprocess.Popen(
            [sys.executable, str(FAKE), "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stdout is not None
        port = process.stdout.readline().split()[-1]
        return Endpoint(f"http://127.0.0.1:{port}", "tiny", "sglang", "tiny", 2048, flushes=True)

    yield started
    for process in running:
        process.kill()
        process.communicate()
