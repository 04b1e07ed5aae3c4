"""``launch=slurm`` from the command line to the end of the job, on a stand-in for Slurm: quick, and on any machine."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.cli.main import entry
from tests.commands import must_follow
from tests.run.launch.processes import wait_until
from tests.run.slurm import fake_slurm_install
from tests.run.slurm.running import DEADLINE_S, ROOT, Running

KEY = "sk-it's\\secret-4711"
TOKEN = "hf_secretive0815"

Serve = Any


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the stand-in for Slurm keeps its jobs."""
    return fake_slurm_install.install(tmp_path, monkeypatch)


@pytest.fixture
def serve(state: Path, fake_python: Path, tmp_path: Path) -> Iterator[Serve]:
    started: list[Running] = []

    def start(*overrides: str, **env: str) -> Running:
        fake = ["gpu=h200", "model=qwen3_8b", "engine=sglang", f"engine.python={fake_python}", "port=0"]
        running = Running(tmp_path / f"run{len(started)}", [*fake, "launch=slurm", *overrides], env)
        started.append(running)
        return running

    yield start
    for running in started:
        running.end()


def test_two_ranks_meet_serve_and_end_without_a_secret_left(serve: Serve, state: Path) -> None:
    asked = ["tp_size=16", "nnodes=2", "api_key=${oc.env:MY_KEY}", "launch.slurm.account=lab", "launch.slurm.mem=0"]
    running = serve(*asked, MY_KEY=KEY, HF_TOKEN=TOKEN, SLURM_MEM_PER_CPU="1", SBATCH_ACCOUNT="other", KEPT="yes")
    running.ready()
    assert running.ask()[0] == 401
    status, answer = running.ask(KEY)
    assert (status, answer["ranks"][0][:7], answer["env"]["HF_TOKEN"]) == (200, "1 node2", TOKEN)

    account = running.account()
    must_follow(account, "slurm_job")
    assert account["phase"] == "ready"
    assert account["nodes"] == ["node1", "node2"]
    assert "8 of 8 as planned" in running.printed
    actual = json.loads((running.folder / "actual.json").read_text())
    must_follow(actual, "actual")

    job = state / "job1"
    script = (job / "script").read_text()
    for line in ("--nodes=2", "--gpus-per-node=8", "--account=lab", "--mem=0", "--no-requeue", "--ntasks-per-node=1"):
        assert f"#SBATCH {line}\n" in script
    kept = json.loads((job / "environment").read_text())
    assert kept["KEPT"] == "yes"
    assert not {"HF_TOKEN", "MY_KEY", "SLURM_MEM_PER_CPU", "SBATCH_ACCOUNT"} & set(kept)

    assert running.ended(signal.SIGINT) == 130
    must_follow(running.account(), "slurm_job")
    assert running.account()["phase"] == "ended"
    assert wait_until(lambda: (job / "state").read_text() == "FAILED", DEADLINE_S)
    for path in (path for folder in (state, running.folder) for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert TOKEN.encode() not in content, path
        assert b"secret-4711" not in content, path


@pytest.mark.thorough
def test_a_server_that_fails_ends_in_4_and_says_why(serve: Serve) -> None:
    running = serve("+engine.env.FAKE_FAULT=memory")
    assert running.ended() == 4
    assert "GPU memory ran out" in running.printed
    assert running.account()["exit_code"] == 4
    must_follow(running.account(), "slurm_job")


@pytest.mark.thorough
def test_a_rank_that_fails_is_heard(serve: Serve) -> None:
    running = serve("tp_size=16", "nnodes=2", "+engine.env.FAKE_FAULT=crash", "+engine.env.FAKE_FAULT_RANK='1'")
    assert running.ended() == 4
    assert "1: RuntimeError: out of luck" in running.printed
    said = " ".join(running.printed.split())
    assert "exit code 1 after" in said
    assert "its last line: 1: RuntimeError: out of luck" in said
    assert "DIA" not in said


@pytest.mark.thorough
def test_a_waiting_job_keeps_its_key_unread_and_ends_without_it(serve: Serve, state: Path) -> None:
    running = serve("api_key=${oc.env:MY_KEY}", MY_KEY=KEY, FAKE_BUSY="1")
    running.job()
    secrets = running.folder / ".secrets"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert running.ended(signal.SIGTERM) == 130
    assert not secrets.exists()
    assert (state / "job1" / "state").read_text() == "CANCELLED"


@pytest.mark.thorough
def test_a_job_that_somebody_else_cancels_is_a_failure(serve: Serve, state: Path) -> None:
    running = serve().ready()
    subprocess.run(["scancel", running.job()], check=True, env={**os.environ})
    assert running.ended() == 4
    assert "SLM015" in running.printed


def test_a_killed_terminal_cancels_its_job(serve: Serve, state: Path) -> None:
    running = serve("api_key=${oc.env:MY_KEY}", MY_KEY=KEY, FAKE_BUSY="1")
    running.job()
    running.process.kill()
    running.process.wait()
    assert wait_until(lambda: (state / "job1" / "state").read_text() == "CANCELLED", 60)
    assert wait_until(lambda: not (running.folder / ".secrets").exists(), 60)


@pytest.mark.thorough
def test_a_terminal_that_was_closed_ends_its_job(state: Path, fake_python: Path, tmp_path: Path) -> None:
    """Everything that is still written fails then, and must not keep the job from being ended."""
    words = ["gpu=h200", "model=qwen3_8b", "engine=sglang", f"engine.python={fake_python}", "port=0", "launch=slurm"]
    ours, its = os.openpty()
    program = subprocess.Popen(
        [sys.executable, "serve.py", *words, f"hydra.run.dir={tmp_path / 'run'}"],
        cwd=ROOT,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    shown = b""
    while b"Ctrl-C stops it" not in shown:
        shown += os.read(ours, 1 << 16)
    os.close(ours)
    program.send_signal(signal.SIGHUP)
    assert program.wait(DEADLINE_S) == 130
    assert wait_until(lambda: (state / "job1" / "state").read_text() == "FAILED", DEADLINE_S)


def test_what_slurm_refuses_is_shown_with_what_to_type(serve: Serve, state: Path) -> None:
    running = serve("launch.slurm.partition=none", "api_key=${oc.env:MY_KEY}", MY_KEY=KEY)
    assert running.ended() == 3
    for words in ("SLM004", "invalid partition specified: none", "launch.slurm.partition=gpu"):
        assert words in running.printed
    assert "sbatch: error" not in running.printed
    assert not (running.folder / ".secrets").exists()


@pytest.mark.parametrize(
    ("overrides", "code", "said"),
    [
        (["launch.slurm.walltime=240"], 2, ["SLM001", "launch.slurm.walltime=4:00:00"]),
        (["launch.slurm.sbatch.array=1-3"], 2, ["SLM001", "leave out launch.slurm.sbatch.array"]),
        (["launch.detach=true"], 2, ["SLM008", "export slurm"]),
        (["launch.slurm.setup=['export T=hf_abc']", "+engine.env.HF_TOKEN=hf_abc"], 2, ["SLM007"]),
        (["launch.slurm.sbatch.comment=k-e-y", "api_key=k-e-y"], 2, ["SLM007"]),
        (["engine.python=/none/python"], 3, ["ENG002", "/none/python is not a program"]),
        (["nnodes=2", "tp_size=2", "engine=transformers"], 2, ["NOD005"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else str(value),
)
def test_what_cannot_be_submitted_is_refused_before(
    capsys: pytest.CaptureFixture[str],
    state: Path,
    fake_python: Path,
    overrides: list[str],
    code: int,
    said: list[str],
) -> None:
    fake = ["gpu=h200", "model=qwen3_8b", "engine=sglang", f"engine.python={fake_python}", "launch=slurm"]
    assert entry([*fake, *overrides]) == code
    printed = " ".join("".join(capsys.readouterr()).split())
    for words in said:
        assert words in printed
    assert not state.exists()


@pytest.mark.parametrize("missing", ["commands", "submitit"])
def test_a_machine_that_cannot_submit_says_what_is_missing(
    missing: str,
    capsys: pytest.CaptureFixture[str],
    state: Path,
    fake_python: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if missing == "commands":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setitem(sys.modules, "submitit", None)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    fake = ["gpu=h200", "model=qwen3_8b", "engine=sglang", f"engine.python={fake_python}", "launch=slurm"]
    assert entry(fake) == 3
    printed = " ".join("".join(capsys.readouterr()).split())
    assert "SLM003" in printed
    wanted = "no sbatch, srun, scontrol, scancel" if missing == "commands" else "pip install 'sglang-hydra[slurm]'"
    assert wanted in printed
