"""Program that cancels a Slurm job when the process that submitted it is gone, for whatever reason.

    python child_cancel.py WATCH_FD JOB_ID [SECRETS_FILE]

It runs beside the process that watches the job, in a session of its own. A byte in the pipe WATCH_FD means that the job
needs no watching any more. If the pipe closes without a byte, this program cancels the job and deletes SECRETS_FILE.
Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

_TRIES = 10
_WAIT_S = 6.0


def main(watch: int, job: str, *left: str) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(watch, 1):
        return 0
    for file in left:
        with contextlib.suppress(OSError):
            os.unlink(file)
    for _ in range(_TRIES):
        done = subprocess.run(["scancel", job], stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode == 0 or b"nvalid job id" in done.stderr:
            return 0
        time.sleep(_WAIT_S)
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
