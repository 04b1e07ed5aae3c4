"""For tests that run ``serve.py`` as a user does: a folder of their own, a fake SGLang, and nothing left afterwards."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from sglang_hydra.cli.main import entry
from tests.commands import must_follow
from tests.forked import run_forked
from tests.run.launch.processes import free_port

ROOT = Path(__file__).parents[3]
DEADLINE_S = 90.0


@dataclass
class Place:
    """Where servers are started: a folder of the test's own, for runs and for their state."""

    folder: Path
    python: Path

    @property
    def env(self) -> dict[str, str]:
        own = {"HF_HUB_OFFLINE": "1", "SGLANG_HYDRA_STATE_DIR": str(self.folder / "state"), "COLUMNS": "200"}
        return {**os.environ, **own, "XDG_CACHE_HOME": str(self.folder / "cache")}

    def serve(self, name: str, *overrides: str, port: int = 0) -> list[str]:
        """The command line that starts a server with the run folder ``name``."""
        return [
            *(sys.executable, "serve.py", "gpu=cpu", "model=tiny", "engine=sglang", f"engine.python={self.python}"),
            *("attention_backend=torch_native", "grammar_backend=none", f"port={port or free_port()}"),
            *("launch.ready_timeout=60", f"hydra.run.dir={self.folder / name}", *overrides),
        ]

    def detached(self, name: str, *overrides: str, port: int = 0) -> list[str]:
        return self.serve(name, "launch.detach=true", *overrides, port=port)

    def run(self, *words: str, code: int | None = 0, **env: str) -> str:
        """What a command prints, after it has ended in ``code``."""
        assert words[:2] == (sys.executable, "serve.py")
        ended, printed = run_forked(list(words[2:]), folder=str(ROOT), env={**self.env, **env})
        assert code in (None, ended), printed
        return printed

    def verb(self, *words: str, code: int = 0) -> str:
        """What a command that starts nothing prints, in this process."""
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            patch.setenv("SGLANG_HYDRA_STATE_DIR", str(self.folder / "state"))
            assert entry(words) == code, said.getvalue()
        return said.getvalue()

    def status(self) -> list[dict[str, Any]]:
        content = json.loads(self.verb("status", "--json"))
        must_follow(content, "status")
        servers: list[dict[str, Any]] = content["servers"]
        return servers


@contextlib.contextmanager
def place_in(folder: Path, python: Path) -> Iterator[Place]:
    """Nothing of what a test starts there is left when the block ends."""
    yield Place(folder, python)
    for process in alive(folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _belongs(process: psutil.Process, folder: Path) -> bool:
    environ = process.info["environ"] or {}
    return environ.get("SGLANG_HYDRA_STATE_DIR") == str(folder / "state")


def alive(folder: Path) -> list[psutil.Process]:
    """Every living process that was started there."""
    return [
        process
        for process in psutil.process_iter(["environ", "status"])
        if _belongs(process, folder) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
