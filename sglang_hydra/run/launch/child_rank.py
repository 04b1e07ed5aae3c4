"""Program that srun starts on every node: takes its orders from standard input and becomes the guard of one rank.

    python child_rank.py

The orders are one line with a length and that many bytes of JSON: the commands of all ranks, the variables to add, the
API key, and how long a rank may take to stop. Each task reads the same and takes the command of its number
(SLURM_PROCID). The key goes on through a pipe, as in ``child_sglang.py``. When standard input ends, the rank is
stopped: srun closes it when asked to, and when it is gone itself. Imports nothing of this package: it may run in a
container.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

_KEY_FD = "SGLANG_HYDRA_KEY_FD"
_LONGEST_LINE = 32


def read_orders(source: int) -> dict[str, Any]:
    """Returns the orders, and not one byte more: the rest is not for us. ValueError if cut off."""
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


def main() -> None:
    try:
        orders = read_orders(0)
    except ValueError as failure:
        sys.exit(f"child_rank: {failure}")
    argv = orders["commands"][int(os.environ.get("SLURM_PROCID", "0"))]
    # The guard watches what was our standard input; the server gets an empty one.
    watched = os.dup(0)
    os.set_inheritable(watched, True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.update(orders["env"])
    if orders["key"] is not None:
        reading, writing = os.pipe()
        os.set_inheritable(reading, True)
        os.set_blocking(writing, False)
        os.write(writing, orders["key"].encode())
        os.close(writing)
        os.environ[_KEY_FD] = str(reading)
    guard = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard.py")
    os.execv(sys.executable, [sys.executable, "-I", "-S", guard, str(watched), str(orders["stop_s"]), *argv])


if __name__ == "__main__":
    main()
