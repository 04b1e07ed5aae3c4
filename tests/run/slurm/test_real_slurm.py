"""``launch=slurm`` on a real Slurm: what a job gets, that its ranks meet, and that nothing of it stays."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.run.launch.processes import wait_until
from tests.run.slurm.cluster import Cluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

# Found in nothing that Slurm keeps: no other test may use the same.
KEY = "sk-it's\\unseen-9203"
TOKEN = "hf_secretive9203"
PLAIN = "as-everybody-may-read"
GONE_S = 60.0
_AT_ONCE = 3
_STARTS = int(os.environ.get("SLURM_STARTS", "24"))

Serve = Any


def left_of(python: Path) -> list[psutil.Process]:
    """What still runs under the stand-in's interpreter."""
    folder = str(python.parent)
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and words and words[0].startswith(folder):
            found.append(process)
    return found


def all_free(cluster: Cluster, python: Path) -> bool:
    """Whether no process is left, no job either, and every node is free again."""
    return wait_until(
        lambda: not left_of(python) and not cluster.ask("squeue", "--noheader") and cluster.idle() == cluster.nodes,
        GONE_S,
    )


def files_with(text: str, *folders: Path) -> list[Path]:
    """Which files hold the text. Slurm writes its own anew all the time, so they are looked at until none is missed."""
    deadline = time.monotonic() + GONE_S
    while True:
        try:
            paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
            return [path for path in paths if not path.is_symlink() and text.encode() in path.read_bytes()]
        except FileNotFoundError:
            assert time.monotonic() < deadline


def test_one_node_serves_with_what_was_asked_for_and_ctrl_c_gives_it_back(
    cluster: Cluster, serve: Serve, fake_python: Path
) -> None:
    asked = ["tp_size=4", "api_key=${oc.env:MY_KEY}", "launch.slurm.partition=gpu", "launch.slurm.walltime=2:30:00"]
    asked += [
        "launch.slurm.cpus=3",
        "launch.slurm.mem=1G",
        "launch.slurm.gpu_type=h200",
        "launch.slurm.constraint=null",
    ]
    asked += ["launch.slurm.sbatch.comment='two words'", "launch.slurm.setup=['export FROM_SETUP=yes']"]
    running = serve(*asked, MY_KEY=KEY, HF_TOKEN=TOKEN, AN_OPEN_WORD=PLAIN).ready()

    shown = cluster.ask("scontrol", "show", "job", running.job())
    for said in ("JobName=sglang-Qwen3-8B", "Partition=gpu", "TimeLimit=02:30:00", "NumNodes=1", "CPUs/Task=3"):
        assert said in shown
    for said in ("MinMemoryNode=1G", "gres:gpu:h200:4", "Comment=two words", "Requeue=0"):
        assert said in shown

    assert running.ask()[0] == 401
    status, answer = running.ask(KEY)
    assert status == 200
    assert answer["env"]["HF_TOKEN"] == TOKEN
    assert len(answer["env"]["CUDA_VISIBLE_DEVICES"].split(",")) == 4
    assert answer["env"]["PYTHONPATH"] is None
    assert "8 of 8 as planned" in running.printed

    # Everything that Slurm keeps, everything in the run folder, and what every user sees of a process.
    recorded = [cluster.folder / "state", cluster.folder / "spool", cluster.folder / "log", running.folder]
    assert files_with(PLAIN, *recorded), "Slurm keeps the environment, and this is where it does"
    for secret in (KEY, TOKEN, "unseen-9203"):
        assert files_with(secret, *recorded) == []
        assert secret not in shown + cluster.ask("scontrol", "write", "batch_script", running.job(), "-")
        assert secret not in running.printed
    commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if "9203" in command or TOKEN in command]
    assert not list(running.folder.glob(".secrets"))

    assert running.ended(signal.SIGINT) == 130
    assert all_free(cluster, fake_python)


def test_two_nodes_meet_at_the_head_and_end_on_sigterm(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("tp_size=16", "nnodes=2", "host=0.0.0.0").ready()
    status, answer = running.ask()
    assert status == 200
    account = running.account()
    assert answer["ranks"] == [f"1 {account['nodes'][1]} 0,1,2,3,4,5,6,7"]
    assert "NumNodes=2" in cluster.ask("scontrol", "show", "job", running.job())
    assert f"--dist-init-addr={account['dist_init_addr']}" not in running.printed
    assert account["dist_init_addr"] in (running.folder / "ranks.json").read_text()
    assert "0: The server is fired up" in running.printed
    assert "1: The server is fired up" in running.printed
    assert f"Ready after {account['elapsed_s']} s at http://{account['address']}:{account['port']}," in running.printed
    assert running.ended(signal.SIGTERM) == 130
    assert all_free(cluster, fake_python)


def test_two_jobs_on_a_node_have_gpus_of_their_own(serve: Serve) -> None:
    node = "launch.slurm.sbatch.nodelist=node3"
    first, second = (serve("tp_size=4", node, gpus) for gpus in ("launch.slurm.gpus=gres", "launch.slurm.cpus=1"))
    seen = [running.ready().ask()[1]["env"]["CUDA_VISIBLE_DEVICES"].split(",") for running in (first, second)]
    assert [len(gpus) for gpus in seen] == [4, 4]
    assert set(seen[0]).isdisjoint(seen[1])
    assert {running.account()["node"] for running in (first, second)} == {"node3"}
    assert first.account()["port"] != second.account()["port"]


def test_a_server_that_crashes_ends_in_4_with_its_diagnosis(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("+engine.env.FAKE_FAULT=memory")
    assert running.ended() == 4
    assert "ENG008" in running.printed
    assert "DIA" in running.printed
    assert "GPU memory ran out" in running.printed
    assert "Traceback" not in running.printed
    assert all_free(cluster, fake_python)


def test_one_rank_that_crashes_takes_the_whole_job_with_it(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("tp_size=16", "nnodes=2", "+engine.env.FAKE_FAULT=crash", "+engine.env.FAKE_FAULT_RANK='1'")
    assert running.ended() == 4
    assert "its last line: 1: RuntimeError: out of luck" in " ".join(running.printed.split())
    assert "DIA" not in running.printed
    assert all_free(cluster, fake_python)


def test_a_server_that_dies_later_ends_in_4(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve().ready()
    assert running.get("/die") is None
    assert running.ended() == 4
    assert "ENG010" in running.printed
    assert all_free(cluster, fake_python)


def test_a_job_that_is_cancelled_from_outside_says_so(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("tp_size=16", "nnodes=2").ready()
    cluster.ask("scancel", running.job())
    assert running.ended() == 4
    assert "SLM015" in running.printed
    assert "CANCELLED" in running.printed
    assert all_free(cluster, fake_python)


def test_a_node_that_goes_down_ends_the_job(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("tp_size=16", "nnodes=2").ready()
    cluster.ask("scontrol", "update", f"nodename={running.account()['nodes'][1]}", "state=down", "reason=test")
    assert running.ended() == 4
    assert "SLM013" in running.printed
    assert wait_until(lambda: not left_of(fake_python), GONE_S)


def test_a_job_that_is_preempted_says_so(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("tp_size=16", "nnodes=2").ready()
    urgent = cluster.ask(
        "sbatch",
        "--parsable",
        "--partition=urgent",
        "--nodes=4",
        "--exclusive",
        "--output=/dev/null",
        "--wrap=sleep 600",
    )
    assert running.ended() == 4
    assert "SLM012" in running.printed
    assert "PREEMPTED" in running.printed
    cluster.ask("scancel", urgent.strip())
    assert all_free(cluster, fake_python)


def test_a_walltime_that_is_over_says_so(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("launch.slurm.walltime=0:01:00").ready()
    # Slurm looks at time limits twice a minute.
    assert running.process.wait(240) == 4
    assert "SLM011" in running.printed
    assert "launch.slurm.walltime" in running.printed
    assert all_free(cluster, fake_python)


def test_what_slurm_refuses_is_shown_with_what_to_type(cluster: Cluster, serve: Serve) -> None:
    running = serve("launch.slurm.partition=gpus", "api_key=${oc.env:MY_KEY}", MY_KEY=KEY)
    assert running.ended() == 3
    assert "SLM004" in running.printed
    assert "invalid partition" in running.printed
    assert "launch.slurm.partition=gpu" in running.printed
    assert not list(running.folder.glob(".secrets"))

    running = serve("launch.slurm.sbatch.nodelist=node9")
    assert running.ended() == 3
    assert "SLM004" in running.printed
    assert "Traceback" not in running.printed


def test_a_job_that_still_waits_is_cancelled_too(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    holding = serve("tp_size=32", "nnodes=4").ready()
    waiting = serve("tp_size=8", "api_key=${oc.env:MY_KEY}", MY_KEY=KEY)
    job = waiting.job()
    assert wait_until(lambda: "PENDING" in cluster.ask("squeue", "--noheader", "-j", job, "-o", "%T"), 30)
    assert list(waiting.folder.glob(".secrets"))
    assert (waiting.folder / ".secrets").stat().st_mode & 0o777 == 0o600
    assert waiting.ended(signal.SIGINT) == 130
    assert not list(waiting.folder.glob(".secrets"))
    assert "CANCELLED" in cluster.ask("scontrol", "show", "job", job)
    assert holding.ended(signal.SIGTERM) == 130
    assert all_free(cluster, fake_python)


def test_a_terminal_that_is_killed_leaves_no_job(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("tp_size=16", "nnodes=2").ready()
    running.process.kill()
    running.process.wait()
    assert all_free(cluster, fake_python)


def test_a_rank_that_does_not_stop_is_killed_in_its_time(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    running = serve("+engine.env.FAKE_FAULT=stubborn", "launch.stop_timeout=2").ready()
    assert running.ended(signal.SIGINT) == 130
    assert all_free(cluster, fake_python)
    assert "I do not stop" in running.printed


def test_hostile_names_reach_the_server_and_nothing_else(
    cluster: Cluster, serve: Serve, fake_python: Path, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    name = f"/a'b\"c $(touch {trap}) `touch {trap}`; touch {trap} #"
    escaped = name.replace("'", "\\'")
    comment = f"launch.slurm.sbatch.comment='$(touch {trap}); touch {trap}'"
    running = serve(f"model_path='{escaped}'", comment).ready()
    assert running.ask()[1]["model"] == name
    assert running.ended(signal.SIGINT) == 130
    assert not trap.exists()
    assert all_free(cluster, fake_python)


def test_the_time_of_a_job_is_measured_from_its_own_start(serve: Serve) -> None:
    started = time.monotonic()
    running = serve().ready()
    assert 0 < running.account()["elapsed_s"] <= time.monotonic() - started


@pytest.mark.timeout(3000)
def test_every_start_becomes_ready(cluster: Cluster, serve: Serve, fake_python: Path) -> None:
    """A start that an older write of its account overtook said "the job is starting" for ever: one of 29."""
    for first in range(0, _STARTS, _AT_ONCE):
        nodes = ("tp_size=1",), ("tp_size=16", "nnodes=2")
        several = [serve(*nodes[number % 3 == 2]) for number in range(first, min(_STARTS, first + _AT_ONCE))]
        for running in several:
            running.ready()
            assert running.account()["phase"] == "ready"
        assert {running.ended(signal.SIGTERM) for running in several} == {130}
    assert all_free(cluster, fake_python)
