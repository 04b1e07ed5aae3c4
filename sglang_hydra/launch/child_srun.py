"""Program that runs all ranks of a job through srun, and stops them gently when it is stopped itself.

    python child_srun.py ORDERS_FILE SECRET_NAMES srun [ARGUMENT ...]

srun answers a SIGTERM by killing every task. So it is never sent one: the ranks' guards (``child_rank.py``) watch their
standard input, which srun carries to them, and its end asks them to stop their servers. The orders are in ORDERS_FILE;
the API key comes through the pipe that the environment names, and the variables SECRET_NAMES (with commas) are taken
out of the environment: both are added to the orders here and are in no file. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from types import FrameType

_KEY_FD = "SGLANG_HYDRA_KEY_FD"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def orders_of(file: str, secret_names: str) -> bytes:
    """The orders as ``child_rank.py`` reads them, the secrets taken out of this process's environment."""
    with open(file, encoding="utf-8") as opened:
        orders = json.load(opened)
    orders["env"] = {**orders["env"], **{name: os.environ.pop(name) for name in secret_names.split(",") if name}}
    orders["key"] = None
    number = os.environ.pop(_KEY_FD, None)
    if number is not None:
        with open(int(number), "rb") as pipe:
            orders["key"] = pipe.read().decode()
    content = json.dumps(orders).encode()
    return b"%d\n%s" % (len(content), content)


def main(file: str, secret_names: str, *command: str) -> int:
    orders = orders_of(file, secret_names)
    ranks = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
    stdin = ranks.stdin
    assert stdin is not None

    def stop(number: int, frame: FrameType | None) -> None:
        for again in _STOP_SIGNALS:
            signal.signal(again, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            stdin.close()

    for number in _STOP_SIGNALS:
        signal.signal(number, stop)
    # srun may have ended already, or been told to stop: its exit code says how.
    with contextlib.suppress(OSError, ValueError):
        left = memoryview(orders)
        while left:
            left = left[stdin.write(left) :]
    code = ranks.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
