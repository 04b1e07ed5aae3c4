"""Puts the stand-in for Slurm on the search path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

PROGRAMS = ("sbatch", "srun", "scontrol", "scancel", "sinfo")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of its state; the commands are found first on PATH until the test is over."""
    programs = folder / "programs"
    programs.mkdir()
    content = (Path(__file__).parent / "fake_slurm.py").read_text()
    for name in PROGRAMS:
        program = programs / name
        program.write_text(f"#!{sys.executable}\n{content}")
        program.chmod(0o755)
    state = folder / "state"
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    monkeypatch.setenv("FAKE_SLURM", str(state))
    return state
