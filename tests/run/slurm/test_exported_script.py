"""The script of ``export slurm``, submitted to a real Slurm as a person would: its nodes, GPUs, head and ranks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sglang_hydra.arguments.reading import parse_argv
from tests.convert.export.exports import HOSTILE, artifact, job_of, plan_of, render, with_intent
from tests.run.slurm.cluster import Cluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

KEY = "sk-it's\\secret-4711"
TWO_NODES = ("gpu=h100", "model=deepseek_v3", "tp_size=16", "nnodes=2", "random_seed=42")

# Stands in for the interpreter that has SGLang: writes down what each rank was given.
_RECORDER = """#!/usr/bin/env bash
out=$RECORDS/rank$SLURM_PROCID
printf '%s\\0' "$@" > "$out.words"
printf '%s\\n' "$SLURMD_NODENAME" "$CUDA_VISIBLE_DEVICES" "${SGLANG_API_KEY-}" "${NCCL_IB_DISABLE-}" > "$out.seen"
"""


def submitted(folder: Path, script: str, **env: str) -> list[tuple[list[str], list[str]]]:
    """Submits the script and waits for its end; of each rank its words and node, GPUs, key and NCCL_IB_DISABLE."""
    recorder = folder / "python"
    recorder.write_text(_RECORDER)
    recorder.chmod(0o755)
    file = folder / "job.sh"
    file.write_text(script, encoding="utf-8")
    given = {"SGLANG_PYTHON": str(recorder), "RECORDS": str(folder), **env}
    done = subprocess.run(
        ["sbatch", "--wait", f"--output={folder}/out.txt", str(file)],
        env={**os.environ, **given},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr + (folder / "out.txt").read_text()
    ranks = []
    for words in sorted(folder.glob("rank*.words")):
        seen = words.with_suffix(".seen").read_text().split("\n")
        ranks.append(([word.decode() for word in words.read_bytes().split(b"\0")[:-1]], seen))
    return ranks


def test_each_node_starts_one_rank_with_its_gpus(cluster: Cluster, tmp_path: Path) -> None:
    script = artifact("slurm", *TWO_NODES, "fabric=tcp").text
    ranks = submitted(tmp_path, script)
    assert len(ranks) == 2
    for rank, (words, (node, gpus, _, no_rdma, *_)) in enumerate(ranks):
        told = parse_argv(words[2:])
        assert words[:2] == ["-m", "sglang.launch_server"]
        assert (told["node_rank"], told["nnodes"], told["tp_size"]) == (rank, 2, 16)
        # All nodes of the test's cluster have this address; the port is drawn from the job's number.
        assert told["dist_init_addr"].startswith("127.0.0.1:2")
        assert node == f"node{rank + 1}"
        assert gpus == "0,1,2,3,4,5,6,7"
        assert no_rdma == "1"
    assert "node 0 is node1" in (tmp_path / "out.txt").read_text()


def test_one_node_gets_the_gpus_that_it_needs(cluster: Cluster, tmp_path: Path) -> None:
    script = artifact("slurm", "gpu=h200", "model=qwen3_8b", "tp_size=2", "random_seed=1").text
    [(words, (_, gpus, *_))] = submitted(tmp_path, script)
    assert parse_argv(words[2:]) == {"model_path": "Qwen/Qwen3-8B", "tp_size": 2, "random_seed": 1}
    assert len(gpus.split(",")) == 2


def test_the_key_comes_from_the_environment_of_sbatch(cluster: Cluster, tmp_path: Path) -> None:
    script = artifact("slurm", *TWO_NODES, "api_key=anything").text
    for words, (_, _, key, *_) in submitted(tmp_path, script, SGLANG_API_KEY=KEY):
        assert key == KEY
        assert not any(KEY in word for word in words)
        assert words[0] == "-c"


def test_hostile_texts_reach_every_rank(cluster: Cluster, tmp_path: Path) -> None:
    text = "".join(HOSTILE.values())
    plan = with_intent(plan_of(*TWO_NODES), served_model_name=text)
    for words, _ in submitted(tmp_path, render("slurm", job_of(plan, ())).text):
        assert parse_argv(words[2:])["served_model_name"] == text
