"""One real Slurm for all tests of launch=slurm, and a SGLang that is none: what a job runs is a stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.slurm.cluster import Cluster, why_not
from tests.run.slurm.running import Running

FAKE = Path(__file__).with_name("fake_sglang")


@pytest.fixture(scope="session")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    problem = why_not()
    if problem is not None:
        pytest.fail(problem, pytrace=False)
    cluster = Cluster(tmp_path_factory.mktemp("slurm"), nodes=4, gpus=8)
    before = os.environ.get("SLURM_CONF")
    os.environ.update(cluster.environment)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


@pytest.fixture
def cluster(started_cluster: Cluster) -> Iterator[Cluster]:
    """Four nodes with eight GPUs each, all idle when a test begins."""
    yield started_cluster
    started_cluster.cancel_all()
    for number in range(1, started_cluster.nodes + 1):
        started_cluster.wake(f"node{number}")


@pytest.fixture(scope="session")
def fake_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter whose environment has a package sglang 0.5.2: the stand-in of fake_sglang/."""
    folder = tmp_path_factory.mktemp("fake") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    for packages in folder.glob("lib/python3*/site-packages"):
        shutil.copytree(FAKE, packages, dirs_exist_ok=True)
    return folder / "bin" / "python"


@pytest.fixture
def serve(cluster: Cluster, fake_python: Path, tmp_path: Path) -> Iterator[type[Running]]:
    """``serve.py ... launch=slurm`` in the background; what a test leaves running is ended."""
    started: list[Running] = []

    class Serving(Running):
        def __init__(self, *overrides: str, **env: str) -> None:
            fake = ["gpu=h200", "model=qwen3_8b", "engine=sglang", f"engine.python={fake_python}", "port=0"]
            super().__init__(tmp_path / f"run{len(started)}", [*fake, "launch=slurm", *overrides], env)
            started.append(self)

    yield Serving
    for running in started:
        running.end()
