"""Runs ``serve`` as a program would, for tests that kill or interrupt it.

python run_serve.py STOP_SECONDS MARKER PORT [fault ...]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sglang_hydra.planning.engines.base import Command
from sglang_hydra.planning.engines.sglang import ENGINE
from sglang_hydra.run.launch.local import Launch, LocalServer, serve


def main(stop_s: str, marker: str, port: str, *faults: str) -> int:
    argv = [sys.executable, str(Path(__file__).with_name("fake_server.py")), marker, port, *faults]
    command = Command(argv, argv)
    launch = Launch(command, "127.0.0.1", int(port), stop_timeout_s=float(stop_s), milestones=ENGINE.milestones)
    outcome = serve(launch, on_ready=ready)
    return outcome.exit_code


def ready(server: LocalServer, seconds: float) -> None:
    """One write: whoever waits for the word may close the terminal before a second one."""
    os.write(2, b"READY\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
