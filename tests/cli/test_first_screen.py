"""A terminal on which nothing is typed: what this machine is, and commands that work on it."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_hydra.cli.first_screen import first_screen
from sglang_hydra.facts import probe
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.planning.engines import planned as planned_engines
from sglang_hydra.planning.engines.base import Availability
from tests.commands import Run, runner

H100S = GpuProbe(
    "nvidia", "cuda", ("NVIDIA H100 80GB HBM3",) * 8, 81559.0, 81559.0, (9, 0), 8, 8, False, None, True, True
)
L4 = GpuProbe("nvidia", "cuda", ("NVIDIA L4",), 23034.0, 23034.0, (8, 9), 1, 1, flashinfer=True)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def shown() -> tuple[list[str], list[str]]:
    """The lines on this machine, and the commands."""
    lines = ["".join(piece for piece, _ in line).strip() for line in first_screen()]
    return lines[: lines.index("")], [line.split("  ")[-1].strip() for line in lines if "sglang-hydra " in line][:3]


def on(monkeypatch: pytest.MonkeyPatch, found: GpuProbe, sglang: str | None = "0.5.23") -> None:
    monkeypatch.setattr(probe, "probe_gpu", lambda *given, **named: found)
    here = Availability(sglang is not None, sglang, None if sglang else "not installed")
    monkeypatch.setattr(type(planned_engines.SGLANG), "available", lambda self, python: here)


def test_a_laptop_is_told_what_it_lacks_and_its_commands_work(run: Run) -> None:
    machine, commands = shown()
    assert len(machine) == 3
    assert machine[0].endswith("none here; gpu=h200 plans for another machine")
    assert machine[1].endswith("not installed here")
    assert commands[2] == "pip install 'sglang-hydra[local]' && sglang-hydra model=tiny"
    for command in commands[:2]:
        assert run(*shlex.split(command)[1:]).code == 0


@pytest.mark.parametrize(
    ("found", "gpus", "model"),
    [(H100S, "8 x h100, 81559 MiB each", "gpt_oss"), (L4, "1 x l4, 23034 MiB each", "qwen3_8b")],
    ids=["h100", "l4"],
)
def test_a_machine_with_gpus_gets_a_model_that_fits_it(
    found: GpuProbe, gpus: str, model: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, found)
    machine, commands = shown()
    assert machine[0].endswith(gpus)
    assert machine[1].split("  ")[-1].strip().startswith("0.5.23, in ")
    assert "plans are for 0.5.23" in machine[2]
    assert [command.split("=")[1].split()[0] for command in commands] == [model] * 3
    planned = run(*shlex.split(commands[0])[1:])
    assert (planned.code, planned.out.startswith("Launch    no")) == (0, False)


def test_a_machine_with_gpus_lacks_sglang_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, H100S, sglang=None)
    _, commands = shown()
    assert commands[2] == "pip install 'sglang[all]==0.5.23' && sglang-hydra model=gpt_oss"


def test_only_a_terminal_where_nothing_was_typed_shows_it(run: Run) -> None:
    assert run().code == 2
    main, other = pty.openpty()
    command = [sys.executable, str(ROOT / "serve.py")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=other, stderr=other, timeout=120, check=False)
    os.close(other)
    assert done.returncode == 0
    assert b"start a server" in os.read(main, 10000)
    os.close(main)
