"""Ctrl-C on a terminal: nothing is left running, no traceback, and the last line says that it was stopped."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.planning.topology.fake_sglang import environment
from tests.run.launch.place import DEADLINE_S, ROOT, Place, alive, place_in

STOPPED = "Stopped: the server, with all of its processes"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the fake SGLang."""
    return environment(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def place(tmp_path: Path, python: Path) -> Iterator[Place]:
    with place_in(tmp_path, python) as made:
        yield made


@pytest.fixture
def make(place: Place) -> list[str]:
    """``make serve`` with this interpreter, as if everything were installed."""
    venv = place.folder / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    (venv / "bin" / "python").chmod(0o755)
    (venv / ".has-local").touch()
    words = [word for word in place.serve("run")[2:] if word != "model=tiny"]
    return ["make", "serve", f"VENV={venv}", f"ARGS={' '.join(words)}"]


def interrupted(command: Sequence[str], env: dict[str, str], until: str) -> tuple[str, int]:
    """What a command prints on a terminal on which Ctrl-C is typed once ``until`` is there, and how it ended."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvpe(command[0], list(command), env)
    printed, is_typed = b"", False
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            more = os.read(terminal, 4096)
        except OSError:  # all who had the terminal are gone
            break
        printed += more
        if until.encode() in printed and not is_typed:
            is_typed = True
            os.write(terminal, b"\x03")
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    shown = re.sub(r"\x1b\[[?\d;]*[A-Za-z]|\r", "", printed.decode())
    return shown, os.waitstatus_to_exitcode(status)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("Ctrl-C stops it", [STOPPED]),
        ("loading weights", [STOPPED]),
        ("Run folder", [STOPPED, "SIGINT: interrupted"]),  # before or after the server's start
    ],
    ids=["ready", "loading", "starting"],
)
def test_ctrl_c_of_make_serve_leaves_nothing_and_says_that_it_stopped(
    until: str, last: list[str], make: list[str], place: Place
) -> None:
    printed, code = interrupted(make, {**place.env, "NO_COLOR": "1"}, until)
    lines = printed.rstrip().splitlines()
    assert "Traceback" not in printed
    assert lines[-1] in last, printed
    assert code == -signal.SIGINT
    assert alive(place.folder) == []


def test_ctrl_c_of_serve_ends_with_130(place: Place) -> None:
    printed, code = interrupted(place.serve("run"), {**place.env, "NO_COLOR": "1"}, "Ctrl-C stops it")
    assert printed.rstrip().splitlines()[-1] == STOPPED, printed
    assert (code, "Traceback" in printed) == (130, False)
    assert alive(place.folder) == []
