"""``hydra/sweeper=sglang`` in other people's apps: every point judged, the rest as Hydra does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plans import written
from tests.run.test_app_main import REPOSITORY

APP = """\
import hydra
import sglang_hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
@sglang_hydra.main
def run(plan):
    print("TASK", plan.values["tp_size"], plan.gpu.name, plan.nodes.bench.concurrency)
    if plan.values["tp_size"] == 8:
        raise RuntimeError(f"task of {plan.gpu.name}")

run()
"""
AT_THE_ROOT = "defaults: [sglang_hydra_schema, gpu: h200, model: gpt_oss, engine: auto, launch: local, _self_]\n"
BELOW = "defaults: [sglang_hydra_schema@server, gpu@server.gpu: h200, model@server.model: gpt_oss, _self_]\nrate: 0.1\n"
UNRELATED = """\
import hydra

@hydra.main(version_base=None)
def run(config):
    print("TASK", config)

run()
"""


def app(folder: Path, *words: str, source: str = APP, config: str = AT_THE_ROOT) -> subprocess.CompletedProcess[str]:
    written(folder, {"app.py": source, "conf/config.yaml": config})
    return subprocess.run(
        [sys.executable, "app.py", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def tasks(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.removeprefix("TASK ") for line in done.stdout.splitlines() if line.startswith("TASK ")]


@pytest.mark.thorough
def test_the_task_runs_for_each_point_that_can_be_launched(tmp_path: Path) -> None:
    words = ["-m", "hydra/sweeper=sglang", "bench.concurrency=1,2", "tp_size=2,3,4", "hydra.sweeper.where='tp_size<4'"]
    done = app(tmp_path, *words)
    assert (done.returncode, tasks(done)) == (0, ["2 h200 1", "2 h200 2"]), done.stderr
    assert "2 CFG004" in done.stdout
    assert "2 SWP006" in done.stdout
    assert "estimate" not in done.stdout


@pytest.mark.thorough
def test_below_a_node_and_with_keys_of_its_own_nothing_is_merged(tmp_path: Path) -> None:
    words = ["-m", "hydra/sweeper=sglang", "gpu@server.gpu=h100,h200", "rate=0.1,0.2", "server.tp_size=2"]
    done = app(tmp_path, *words, config=BELOW)
    assert (done.returncode, tasks(done)) == (0, ["2 h200 None", "2 h200 None", "2 h100 None", "2 h100 None"])


@pytest.mark.thorough
def test_every_failure_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    done = app(tmp_path, "-m", "hydra/sweeper=sglang", "gpu=h100,h200", "tp_size=8,1")
    assert (done.returncode, len(tasks(done))) == (1, 4)
    for gpu in ("h100", "h200"):
        assert f"gpu={gpu} tp_size=8: RuntimeError: task of {gpu}" in done.stderr


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("words", "source", "id"),
    [
        (["+a=1,2"], UNRELATED, "SWP011"),
        (["tp_size=3"], APP, "SWP007"),
        (["tp_size=interval(1,2)"], APP, "SWP002"),
    ],
)
def test_what_cannot_be_swept_is_told_and_nothing_runs(tmp_path: Path, words: list[str], source: str, id: str) -> None:
    done = app(tmp_path, "-m", "hydra/sweeper=sglang", *words, source=source)
    assert (done.returncode, tasks(done), id in done.stderr) == (2, [], True), done.stderr
    assert "Traceback" not in done.stderr


def test_an_unrelated_app_sweeps_as_before(tmp_path: Path) -> None:
    done = app(tmp_path, "-m", "+a=1,2", source=UNRELATED)
    assert (done.returncode, tasks(done)) == (0, ["{'a': 1}", "{'a': 2}"])


def test_an_unrelated_app_imports_nothing_of_ours(tmp_path: Path) -> None:
    source = UNRELATED.replace(
        "run()\n", "run()\nimport sys\nprint('LOADED', sorted(m for m in sys.modules if 'sglang' in m))\n"
    )
    done = app(tmp_path, source=source)
    loaded = [
        "hydra_plugins.sglang_hydra",
        "hydra_plugins.sglang_hydra.search_path",
        "hydra_plugins.sglang_hydra.sweeper",
    ]
    assert f"LOADED {loaded}" in done.stdout
