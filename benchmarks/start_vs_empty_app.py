"""What we add to the start of a server: from our process's start to its program's, against an empty Hydra app.

    python benchmarks/start_vs_empty_app.py [--runs 15] [OVERRIDE ...]

The interpreter that has SGLang is a stand-in here: a script that says when it was started, and ends. Everything
before it is real: composing, planning, looking at the machine, Hydra's run folder, the guard. The empty app is timed
whole, both in turns, medians. The target is a ratio, because seconds depend on the machine: at most 2.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from processes import EMPTY_APP, REPOSITORY, measure, workplace

OVERRIDES = ["model=qwen3_0_6b", "gpu=cpu"]
TARGET = 2.0


def stand_in(folder: Path) -> Path:
    """An environment that reads as one with SGLang 0.5.2; its interpreter opens ``folder``/started and ends."""
    environment = folder / "environment"
    program = environment / "bin" / "python"
    program.parent.mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    (environment / "lib" / "python3.11" / "site-packages" / "sglang-0.5.2.dist-info").mkdir(parents=True)
    os.mkfifo(folder / "started")
    program.write_text(f"#!/bin/sh\n: > '{folder / 'started'}'\n")
    program.chmod(0o755)
    return program


def seconds_to_start(program: Path, folder: Path, overrides: list[str], *, terminal: bool) -> float:
    """Seconds from the start of ``serve.py`` to that of the server's program. Raises RuntimeError if there is none."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "HF_HUB_OFFLINE")
    env = {name: value for name, value in os.environ.items() if name not in unwanted}
    command = [sys.executable, str(REPOSITORY / "serve.py"), "engine=sglang", f"engine.python={program}", "port=0"]
    # Opened for reading first, so that the stand-in's opening for writing finds its other end and does not wait.
    started = os.open(folder / "started", os.O_RDONLY | os.O_NONBLOCK)
    reader, writer = pty.openpty() if terminal else os.pipe()
    try:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [*command, *overrides], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer
        )
        os.close(writer)
        printed, seconds = b"", None
        waited_for = select.poll()
        waited_for.register(reader, select.POLLIN | select.POLLHUP)
        waited_for.register(started, select.POLLIN | select.POLLHUP)
        while seconds is None or process.poll() is None:
            for number, _ in waited_for.poll():
                try:
                    chunk = os.read(number, 1 << 16)
                except OSError:  # how a pseudo-terminal ends
                    chunk = b""
                if number == started:
                    seconds = time.perf_counter() - begin
                    waited_for.unregister(started)
                elif chunk:
                    printed += chunk
                elif seconds is None:
                    raise RuntimeError(f"it ended without a start:\n{printed.decode(errors='replace')}")
                else:
                    process.wait()
        return seconds
    finally:
        os.close(reader)
        os.close(started)


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the way to a server's start against an empty Hydra app.")
    parser.add_argument("--runs", type=int, default=15, help="runs of each, after one that does not count")
    parser.add_argument("overrides", nargs="*", default=OVERRIDES, metavar="OVERRIDE")
    options = parser.parse_args()
    print(f"python serve.py {' '.join(options.overrides)}   median of {options.runs}")
    for output in ("piped", "terminal"):
        terminal = output == "terminal"
        empty, starts = [], []
        with workplace() as folder:
            program = stand_in(folder)
            for turn in range(options.runs + 1):
                cost = measure([sys.executable, "-c", EMPTY_APP], folder, terminal=terminal)
                start = seconds_to_start(program, folder, options.overrides, terminal=terminal)
                if turn:
                    empty.append(cost.seconds)
                    starts.append(start)
        print(
            f"  {output:9} empty app {median(empty) * 1000:4.0f} ms   to the server's start "
            f"{median(starts) * 1000:4.0f} ms   ratio {median(starts) / median(empty):.2f} (target below {TARGET:g})"
        )


if __name__ == "__main__":
    main()
