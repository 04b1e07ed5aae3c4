"""Finding and awaiting processes by a marker in their command line."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable

import psutil

_given: set[int] = set()


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
    """A port that is free now, given out once, and none that the system gives to outgoing connections."""
    while True:
        port = random.randrange(10000, 20000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


def listens(port: int) -> bool:
    """Whether somebody answers on this port of the loopback address."""
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex(("127.0.0.1", port)) == 0
