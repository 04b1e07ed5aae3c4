"""A log beside the plan of its server: what was predicted is evidence, and changes are those of that plan."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sglang_hydra.run.launch import servers
from sglang_hydra.run.launch.processes import name_of
from tests.commands import Run, runner

TOO_LITTLE = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("SGLANG_HYDRA_STATE_DIR", str(tmp_path / "state"))
    of = runner(capsys, monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_STATE_DIR", str(tmp_path / "state"))
    return of


def started(run: Run, folder: Path, *, free: float, weights: float, last: str) -> Path:
    """Makes the run folder of a server of llama_3_1_8b on one H100."""
    folder.mkdir()
    made = run("plan", "--json", "gpu=h100", "model=llama_3_1_8b")
    (folder / "plan.json").write_text(made.out)
    lines = (
        f"[2026-11-20 03:12:44 TP0] Load weight begin. avail mem={free:.2f} GB",
        f"[2026-11-20 03:12:54 TP0] Load weight end. avail mem={free - weights:.2f} GB, mem usage={weights:.2f} GB.",
        f"[2026-11-20 03:12:58 TP0] {last}",
    )
    (folder / "server.log").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    ("free", "weights", "first", "evidence"),
    [
        (40.1, 15.05, "nvidia-smi names the process that holds 38.6 GiB", "38.6 GiB fewer were free than planned"),
        (78.6, 15.05, "", "planned 78.7 GiB free before loading, 78.6 measured"),
        (78.6, 29.9, "", "the weights are not those of the plan"),
    ],
)
def test_what_was_predicted_is_evidence(
    run: Run, tmp_path: Path, free: float, weights: float, first: str, evidence: str
) -> None:
    folder = started(run, tmp_path / "run", free=free, weights=weights, last=TOO_LITTLE)
    found = json.loads(run("diagnose", "--json", str(folder)).out)["results"][0]
    assert any(evidence in note for note in found["notes"]), found["notes"]
    hint = found["finding"]["hint"]
    assert hint.startswith(first) if first else "nvidia-smi names the process" not in hint
    assert not any("type model=" in note for note in found["notes"])


def test_a_detached_server_is_named_as_everywhere(run: Run, tmp_path: Path) -> None:
    folder = started(run, tmp_path / "run", free=40.1, weights=15.05, last=TOO_LITTLE)
    name, process = "llama-30000", name_of(os.getpid())
    assert process is not None
    servers.claim(
        servers.ServerRecord(
            name=name, server_id="0" * 16, url="http://127.0.0.1:30000", health="/health", model="llama",
            engine="sglang", run_folder=str(folder), log=str(folder / "server.log"), stop_timeout=1.0,
            process=process, started_at=0.0, state=servers.FAILED,
        )
    )  # fmt: skip
    assert run("diagnose", name).out.splitlines()[0].startswith(f"{name}: mem_fraction_too_low")


def test_a_healthy_server_is_compared_too(run: Run, tmp_path: Path) -> None:
    ready = "The server is fired up and ready to roll!"
    folder = started(run, tmp_path / "run", free=78.6, weights=15.05, last=ready)
    found = json.loads(run("diagnose", "--json", str(folder)).out)["results"][0]
    assert found["state"] == "healthy"
    assert any("15.1 measured" in note for note in found["notes"]), found


def test_a_plan_that_cannot_be_read_is_said(run: Run, tmp_path: Path) -> None:
    folder = started(run, tmp_path / "run", free=40.1, weights=15.05, last=TOO_LITTLE)
    (folder / "plan.json").write_text("{")
    printed = run("diagnose", str(folder))
    assert printed.code == 0
    assert "its plan.json was not used" in printed.out


def test_a_plan_of_somebody_else_starts_no_program(run: Run, tmp_path: Path) -> None:
    folder = started(run, tmp_path / "run", free=40.1, weights=15.05, last=TOO_LITTLE)
    program = folder / "python"
    program.write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    program.chmod(0o755)
    made = run("plan", "--json", "gpu=h100", "model=llama_3_1_8b", f"engine.python={program}")
    (folder / "plan.json").write_text(made.out)
    (folder / "ran").unlink(missing_ok=True)
    assert "planned 78.7 GiB free" in run("diagnose", str(folder)).out
    assert not (folder / "ran").exists()
