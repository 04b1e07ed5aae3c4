"""Sweeps on real engines: each server once, every point measured, nothing measured twice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.real.servers import ROOT, SGLANG_ON_CPU

pytestmark = pytest.mark.timeout(1200)

DEADLINE_S = 1000


def bench(folder: Path, *words: str) -> str:
    """What ``bench -m`` prints, after it has ended well."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "SGLANG_HYDRA_TEST": str(folder)}
    done = subprocess.run(
        [sys.executable, "serve.py", "bench", "-m", "model=tiny", "gpu=cpu", *words, f"sweep.folder={folder}/sweep"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def results(folder: Path) -> dict[str, dict[str, Any]]:
    return {file.parent.name: json.loads(file.read_text()) for file in folder.glob("sweep/points/*/result.json")}


def left_over(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SGLANG_HYDRA_TEST") == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def measured_once(folder: Path, words: list[str], count: int) -> list[dict[str, Any]]:
    said = bench(folder, *words)
    assert len(re.findall(r"server \w+: starting", said)) == 1, said
    first = results(folder)
    assert len(first) == count
    assert left_over(folder) == []
    assert "starting" not in bench(folder, *words)
    assert results(folder) == first
    return list(first.values())


def test_six_points_on_the_embedded_engine_are_one_start_and_a_report(embedded_python: str, tmp_path: Path) -> None:
    words = ["engine=transformers", f"engine.python={embedded_python}", "bench.num_prompts=8", "bench.input_len=64"]
    words += ["bench.concurrency=1,2,4", "bench.output_len=8,16"]
    for record in measured_once(tmp_path, words, 6):
        assert record["measures"]["completed"] == 8, record["reasons"]
        assert record["measures"]["output_tokens"] == 8 * record["workload"]["output_len"]
        assert record["measures"]["input_tokens"] == 8 * 64
    report = subprocess.run(
        [sys.executable, "serve.py", "report", str(tmp_path / "sweep")], cwd=ROOT, capture_output=True, text=True
    )
    assert report.returncode == 0, report.stderr
    assert "<table" in (tmp_path / "sweep" / "report.html").read_text()


def test_points_on_the_real_sglang_are_one_start(sglang_python: str, tmp_path: Path) -> None:
    words = ["engine=sglang", f"engine.python={sglang_python}", *SGLANG_ON_CPU]
    words += ["bench.concurrency=1,2", "bench.output_len=8,16", "bench.num_prompts=8", "bench.input_len=32"]
    for record in measured_once(tmp_path, words, 4):
        assert record["measures"]["completed"] == 8, record["reasons"]
        assert record["measures"]["output_tokens"] == 8 * record["workload"]["output_len"]
        # Without a prefix cache nothing can come from it; that the server says so means that its metrics were read.
        assert record["server"] is not None
        assert record["cache_hit_rate"] == 0
        assert record["server"]["retracted"] == 0
