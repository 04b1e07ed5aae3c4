"""Times whole processes: wall seconds and peak memory, with the output piped or on a pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
ROWS, COLUMNS = 40, 120
EMPTY_APP = """
import hydra

@hydra.main(version_base=None)
def app(config):
    pass

app()
"""
"""A Hydra app that does nothing: what planning and starting are measured against."""


class Cost(NamedTuple):
    """What one process took. The memory is its largest resident set, without its children; what this program itself
    holds (about 15 MiB) is a floor, because a process begins as a copy of it."""

    seconds: float
    mib: float


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """An empty folder to run in, removed afterwards: a Hydra app leaves its run folders there."""
    with tempfile.TemporaryDirectory(prefix="sglang-hydra-bench-") as folder:
        yield Path(folder)


def measure(command: Sequence[str], folder: Path, *, terminal: bool = False) -> Cost:
    """Runs ``command`` in ``folder`` to its end, reading what it prints. Raises RuntimeError if it fails."""
    # A tree whose byte code is not kept would be compiled again in every run.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env.update(HF_HUB_OFFLINE="1", TERM="xterm-256color", PYTHONPATH=str(REPOSITORY))
    reader, writer = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
    os.close(writer)
    printed = _read_to_end(reader)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{printed.decode(errors='replace')}")
    return Cost(seconds, usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))


def interleaved(commands: Mapping[str, Sequence[str]], runs: int, *, terminal: bool = False) -> dict[str, Cost]:
    """The median of ``runs`` for each command, taken in turns so that a busy machine slows all alike.

    One run of each comes first and does not count: it compiles the byte code and fills the file cache.
    """
    taken: dict[str, list[Cost]] = {name: [] for name in commands}
    with workplace() as folder:
        for turn in range(runs + 1):
            for name, command in commands.items():
                cost = measure(command, folder, terminal=terminal)
                if turn:
                    taken[name].append(cost)
    return {
        name: Cost(median(cost.seconds for cost in costs), median(cost.mib for cost in costs))
        for name, costs in taken.items()
    }


def _read_to_end(reader: int) -> bytes:
    printed = b""
    with contextlib.suppress(OSError):  # a pseudo-terminal says EIO at its end
        while chunk := os.read(reader, 1 << 16):
            printed += chunk
    os.close(reader)
    return printed
