"""Finding and awaiting processes by a marker in their command line."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import psutil


def marked(marker: str) -> list[psutil.Process]:
    """Every living process with the marker among its arguments."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if marker in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether somebody answers on this port of the loopback address."""
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex(("127.0.0.1", port)) == 0
