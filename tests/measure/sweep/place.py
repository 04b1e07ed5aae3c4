"""For tests that run sweeps: fake SGLang servers, started as real ones are, that count their starts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.measure.sweep.grid import read_grid
from sglang_hydra.measure.sweep.planning import plan_sweep, sweep_of
from sglang_hydra.measure.sweep.points import Source, Sweep
from sglang_hydra.measure.sweep.store import Store
from tests.forked import run_forked

ROOT = Path(__file__).parents[3]
FAKE = Path(__file__).with_name("fake_sglang")
SLOWNESS = ("requests were in flight on average", "the client's own delay", "waited for a core")
"""What makes a short run invalid on a slow or busy machine, and is no fault of a sweep."""
DEADLINE_S = 240.0


def make_fake_python(folder: Path) -> Path:
    """An interpreter whose environment has a package sglang 0.5.2: the stand-in of fake_sglang/."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=DEADLINE_S)
    for packages in venv.glob("lib/python3*/site-packages"):
        shutil.copytree(FAKE, packages, dirs_exist_ok=True)
        (packages / "tests.pth").write_text(f"{ROOT}\n")
    return venv / "bin" / "python"


class Place:
    """A folder of its own for sweeps, and what was started from there."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.python = folder, python
        self.starts_file = folder / "starts"
        self.fault: dict[str, Any] = {}

    @property
    def sweep_folder(self) -> Path:
        return self.folder / "sweep"

    @property
    def store(self) -> Store:
        return Store(self.sweep_folder)

    @property
    def env(self) -> dict[str, str]:
        options = {"decode_ms": 1, "starts": str(self.starts_file), **self.fault}
        return {"FAKE_SGLANG": json.dumps(options), "HF_HUB_OFFLINE": "1", "SGLANG_HYDRA_TEST": str(self.folder)}

    def words(self, *own: str) -> list[str]:
        """What is typed after ``bench -m``: a small load on fake servers."""
        return [
            *("model=tiny", "gpu=cpu", "engine=sglang", f"engine.python={self.python}"),
            *("attention_backend=torch_native", "grammar_backend=none", "launch.stop_timeout=5"),
            *("bench.client=builtin", "bench.input_len=16", "bench.output_len=2", "bench.num_prompts=4"),
            *("bench.warmup=0", "bench.concurrency=2", f"sweep.folder={self.sweep_folder}"),
            *own,
        ]

    def plan(self, *own: str, **settings: Any) -> Sweep:
        """A planned sweep."""
        composer = Composer([], PRIMARY_NAME)
        # The last of several words for a key is the one that was meant.
        words = {word.partition("=")[0]: word for word in self.words(*own)}
        requests = [Request(word, f"argument {number}") for number, word in enumerate(words.values())]
        outcome = plan_sweep(composer, read_grid(composer, requests), seed=7)
        sweep = sweep_of(outcome, Source(seed=7))
        return replace(sweep, settings={**sweep.settings, **settings})

    def command(self, *own: str, verb: Sequence[str] = ("bench", "-m")) -> list[str]:
        words = {word.partition("=")[0]: word for word in self.words(*own)}
        return [sys.executable, "serve.py", *verb, *words.values()]

    def start(self, words: Sequence[str], **env: str) -> subprocess.Popen[str]:
        """A command in the background, in a session of its own."""
        return subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, words: Sequence[str], code: int = 0, **env: str) -> str:
        """What a command prints, after it has ended in ``code``."""
        assert list(words[:2]) == [sys.executable, "serve.py"]
        if any(word.startswith("hydra/launcher=") for word in words):  # launchers start processes in their own ways
            process = self.start(words, **env)
            printed, _ = process.communicate(timeout=DEADLINE_S)
            ended = process.returncode
        else:
            ended, printed = run_forked(list(words[2:]), folder=str(ROOT), env={**os.environ, **self.env, **env})
        assert ended == code, printed
        return printed

    def starts(self) -> list[str]:
        """A line for each server that was started."""
        return self.starts_file.read_text().splitlines() if self.starts_file.exists() else []

    def states(self, sweep: Sweep) -> Counter[str]:
        """How many points are done, failed and open."""
        return Counter(self.store.state(point.point_id).state for point in sweep.points())

    def results(self) -> dict[str, dict[str, Any]]:
        """Every result by its point_id; each file is whole."""
        files = self.sweep_folder.glob("points/*/result.json")
        return {file.parent.name: json.loads(file.read_text()) for file in files}

    def alive(self) -> list[psutil.Process]:
        """Every living process that was started from here."""
        found = []
        for process in psutil.process_iter(["status"]):
            with contextlib.suppress(psutil.Error):
                if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get("SGLANG_HYDRA_TEST") == str(self.folder):
                    found.append(process)
        return found


def faultless(record: Mapping[str, Any]) -> bool:
    """Whether a result is valid, or would be on a quick machine."""
    reasons = [str(reason) for reason in record["reasons"]]
    return all(any(said in reason for said in SLOWNESS) for reason in reasons)


@contextlib.contextmanager
def place_in(folder: Path, python: Path) -> Iterator[Place]:
    """Nothing of what a test starts there is left when the block ends."""
    place = Place(folder, python)
    try:
        yield place
    finally:
        for process in place.alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
