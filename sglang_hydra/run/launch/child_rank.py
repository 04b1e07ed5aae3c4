"""Program that srun starts on every node: reads its orders from standard input and becomes the guard of one rank.

    python child_rank.py

The orders are one line with a length, followed by that many bytes of JSON: the commands of all ranks, the variables to
add, the API key, and the seconds that a rank may take to stop. Each task reads the same orders and takes the command of
its number (SLURM_PROCID). It passes the key on through a pipe, as ``child_sglang.py`` does. The rank stops when
standard input ends: srun closes it on request, and when srun itself is gone. Imports nothing of this package, because
it may run in a container."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

_KEY_FD = "SGLANG_HYDRA_KEY_FD"
_LONGEST_LINE = 32


def read_orders(source: int) -> dict[str, Any]:
    """Reads the orders, and no byte beyond them. Raises ValueError if they are missing or cut off."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(source, 1)
        if not byte or len(line) > _LONGEST_LINE:
            raise ValueError("no orders came")
        line += byte
    left = int(line)
    parts = []
    while left:
        part = os.read(source, left)
        if not part:
            raise ValueError("the orders were cut off")
        parts.append(part)
        left -= len(part)
    orders: dict[str, object] = json.loads(b"".join(parts))
    return orders


def pipe_with(secret: bytes) -> int:
    """Returns the reading end of a pipe with the secret. Every system buffers at least 4 KiB in a pipe."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        os.write(writing, secret)
    finally:
        os.close(writing)
    return reading


def main() -> None:
    try:
        orders = read_orders(0)
    except ValueError as failure:
        sys.exit(f"child_rank: {failure}")
    argv = orders["commands"][int(os.environ.get("SLURM_PROCID", "0"))]
    # The guard watches the original standard input; the server gets an empty one.
    watched = os.dup(0)
    os.set_inheritable(watched, True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.update(orders["env"])
    if orders["key"] is not None:
        reading = pipe_with(orders["key"].encode())
        os.set_inheritable(reading, True)
        os.environ[_KEY_FD] = str(reading)
    guard = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard.py")
    os.execv(sys.executable, [sys.executable, "-I", "-S", guard, str(watched), str(orders["stop_s"]), *argv])


if __name__ == "__main__":
    main()
