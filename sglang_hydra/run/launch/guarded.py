"""Starts a server's process below its guard, which sees to it that none of its processes outlives us."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from sglang_hydra.planning.engines.base import Command
from sglang_hydra.run.launch.child_sglang import KEY_FD

_GUARD = Path(__file__).with_name("guard.py")


def start_guarded(command: Command, stop_s: float) -> tuple[subprocess.Popen[bytes], int]:
    """Returns the guard, and a descriptor: when it is closed, the server is stopped; when it can be read, all of the
    guard has ended. ``stop_s`` is how long the server may take to end by itself, in seconds."""
    watched, watch = (end.detach() for end in socket.socketpair())
    passed = [watched]
    # Python holds back what goes into a pipe, and the lines are wanted as they come.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PATH": _search_path(command), **command.env}
    environment.pop(KEY_FD, None)
    if command.secret is not None:
        passed.append(_pipe_with(command.secret))
        environment[KEY_FD] = str(passed[-1])
    guard = [sys.executable, "-I", "-S", str(_GUARD), str(watched), str(stop_s)]
    try:
        process = subprocess.Popen(
            [*guard, *command.argv],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=passed,
        )
    except BaseException:
        os.close(watch)
        raise
    finally:
        for end in passed:
            os.close(end)
    return process, watch


def _search_path(command: Command) -> str:
    """Tools of the engine's environment (ninja, for one) are found by what the engine runs."""
    own, rest = os.path.dirname(command.argv[0]), os.environ.get("PATH", os.defpath)
    return f"{own}{os.pathsep}{rest}" if own else rest


def _pipe_with(secret: str) -> int:
    """Returns the reading end of a pipe that holds the secret and then ends. A pipe takes 4 KiB at once everywhere."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        os.write(writing, secret.encode("utf-8", "surrogateescape"))
    finally:
        os.close(writing)
    return reading
