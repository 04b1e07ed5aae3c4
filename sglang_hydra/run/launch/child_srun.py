"""Program that runs all ranks of a job through srun, and stops them gently when it is stopped itself.

    python child_srun.py ORDERS_FILE SECRET_NAMES srun [ARGUMENT ...]

srun answers a SIGTERM by killing every task, so it never gets one. Instead the ranks' guards (``child_rank.py``) watch
their standard input, which srun carries to them; its end makes them stop their servers. ORDERS_FILE contains the
orders. This program adds the API key, from the pipe that the environment names, and the variables SECRET_NAMES
(comma-separated), which it removes from its environment; no file contains them. Standard library only.

With several ranks (--label), srun cuts a line after 1024 bytes and labels each piece as a line: this program joins
them. When a rank fails, srun ends the others, reports how each ended, and exits with the highest code. This program
exits with the first code, and drops the reports on the other ranks, which explain nothing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import IO

_KEY_FD = "SGLANG_HYDRA_KEY_FD"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# MAX_MSG_LEN of Slurm's slurm_protocol_defs.h
_PIECE = 1024
_LONGEST_LINE = 1 << 20
_LABEL = re.compile(rb" *\d+: ")
_ENDED = re.compile(rb"srun: error: \S+: tasks? [\d,-]+: (?:Exited with exit code (?P<code>\d+)|.)")
_CONSEQUENCE = re.compile(
    rb"srun: error: \S+: tasks? |srun: launch/slurm: _step_signal|srun: Job step aborted|"
    rb"(?: *\d+: )?slurmstepd-\S+: error: \*\*\* STEP "
)
_KILLED = 137
_DRAIN_S = 10.0
_LOOK_AGAIN_S = 1.0


def orders_of(file: str, secret_names: str) -> bytes:
    """Returns the orders in the format of ``child_rank.py``, with the secrets from this process's environment."""
    with open(file, encoding="utf-8") as opened:
        orders = json.load(opened)
    orders["env"] = {**orders["env"], **{name: os.environ.pop(name) for name in secret_names.split(",") if name}}
    orders["key"] = None
    number = os.environ.pop(_KEY_FD, None)
    if number is not None:
        with open(int(number), "rb") as pipe:
            orders["key"] = pipe.read().decode()
    return as_message(orders)


def as_message(orders: object) -> bytes:
    """Returns orders in the format of ``child_rank.py``."""
    content = json.dumps(orders).encode()
    return b"%d\n%s" % (len(content), content)


def whole_lines(source: IO[bytes], target: IO[bytes], codes: list[int]) -> None:
    """Copies labelled lines, joins the pieces of each, and collects the exit codes that srun reports. Returns when
    ``source`` ends."""
    begun: dict[bytes, bytes] = {}
    for line in source:
        if codes and _CONSEQUENCE.match(line):
            continue
        label = _LABEL.match(line)
        if label is None:
            if ended := _ENDED.match(line):
                codes.append(int(ended["code"] or _KILLED))
            target.write(line)
            target.flush()
            continue
        piece = line[label.end() :].rstrip(b"\n")
        whole = begun.pop(label[0], b"") + piece
        if len(piece) == _PIECE and len(whole) < _LONGEST_LINE:
            begun[label[0]] = whole
        else:
            target.write(label[0] + whole + b"\n")
            target.flush()
    target.writelines(rank + whole + b"\n" for rank, whole in begun.items())
    target.flush()


def main(file: str, secret_names: str, *command: str) -> int:
    orders = orders_of(file, secret_names)
    output = subprocess.PIPE if "--label" in command else None
    ranks = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, bufsize=0)
    stdin = ranks.stdin
    assert stdin is not None
    codes: list[int] = []
    copying = [
        threading.Thread(target=whole_lines, args=(io.BufferedReader(pipe), target, codes), daemon=True)
        for pipe, target in ((ranks.stdout, sys.stdout.buffer), (ranks.stderr, sys.stderr.buffer))
        if isinstance(pipe, io.RawIOBase)
    ]
    for thread in copying:
        thread.start()

    def stop(number: int, frame: FrameType | None) -> None:
        for again in _STOP_SIGNALS:
            signal.signal(again, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            stdin.close()

    for number in _STOP_SIGNALS:
        signal.signal(number, stop)
    # srun may have ended already or be stopping: its exit code shows this.
    with contextlib.suppress(OSError, ValueError):
        left = memoryview(orders)
        while left:
            left = left[stdin.write(left) :]
    code = None
    while code is None:  # a signal just before an unlimited wait would not end it
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = ranks.wait(_LOOK_AGAIN_S)
    for thread in copying:
        thread.join(_DRAIN_S)
    if code and codes:
        return codes[0]
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
