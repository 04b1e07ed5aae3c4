"""A signal that comes before there is a server ends the program in a word, whatever it was doing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60
SERVE = [sys.executable, str(ROOT / "serve.py")]
CONSOLE = [sys.executable, "-c", "import sys; from sglang_hydra.start import main; sys.exit(main())"]

WAITS = "print('here', flush=True)\nimport sys\nsys.stdin.readline()\nraise SystemExit(7)\n"
WRAPS = (
    "print('here', flush=True)\nimport sys\n"
    "try:\n    sys.stdin.readline()\nexcept BaseException as found:\n    raise RuntimeError('a class') from found\n"
)
WHILE_IMPORTING = ("dataclasses", WAITS)
"""What the command line imports first of all."""
WHILE_PLANNING = ("omegaconf", WAITS)
WRAPPED_BY_THE_IMPORT = ("omegaconf", WRAPS)


def interrupted(
    command: list[str], module: tuple[str, str], number: signal.Signals, folder: Path, *, ignored: bool = False
) -> tuple[int, str, str]:
    """Sends a signal to ``plan`` while it imports ``module``; its exit code and what it said."""
    name, content = module
    (folder / f"{name}.py").write_text(content)
    before = signal.signal(number, signal.SIG_IGN) if ignored else None
    try:
        process = subprocess.Popen(
            [*command, "plan", "gpu=h200", "model=qwen3_8b"],
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        if before is not None:
            signal.signal(number, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(number)
        out, err = process.communicate("go on\n" if ignored else None, timeout=DEADLINE_S)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("module", [WHILE_IMPORTING, WHILE_PLANNING])
def test_an_interrupted_plan_ends_in_a_word(number: signal.Signals, module: tuple[str, str], tmp_path: Path) -> None:
    # serve.py finds the package beside itself and everything else where PYTHONPATH says.
    assert interrupted(SERVE, module, number, tmp_path) == (130, "", f"\n{number.name}: interrupted\n")


@pytest.mark.parametrize("module", [WHILE_IMPORTING, WRAPPED_BY_THE_IMPORT])
def test_the_installed_program_does_the_same(module: tuple[str, str], tmp_path: Path) -> None:
    assert interrupted(CONSOLE, module, signal.SIGINT, tmp_path) == (130, "", "\nSIGINT: interrupted\n")


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    assert interrupted(SERVE, WHILE_PLANNING, signal.SIGHUP, tmp_path, ignored=True) == (7, "", "")


def test_both_programs_begin_where_signals_are_answered() -> None:
    (script,) = re.findall(r'^sglang-hydra = "(.+):(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert callable(getattr(import_module(script[0]), script[1]))
    assert f"from {script[0]} import {script[1]}" in (ROOT / "serve.py").read_text()
