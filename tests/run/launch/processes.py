"""Finding and awaiting processes by a marker in their command line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
import time
from collections.abc import Callable
from functools import cache
from typing import BinaryIO

import psutil


def marked(marker: str) -> list[psutil.Process]:
    """Every living process with the marker among its arguments."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if marker in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE:
            # The state is read again: it could be older than the command line.
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
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


_given: set[int] = set()


def free_port() -> int:
    """A port that is free now, none that the system gives to outgoing connections. It is this process's until it ends:
    the server that is to listen there starts later, and other test processes of this machine look for ports, too."""
    while True:
        port = random.randrange(10000, 20000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                fcntl.lockf(_locked_ports(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                _given.add(port)
                return port


@cache
def _locked_ports() -> BinaryIO:
    """A file in which each test process of this user locks one byte for each port that it was given."""
    return open(os.path.join(tempfile.gettempdir(), f"ports-of-tests-{os.getuid()}"), "ab")


def listens(port: int) -> bool:
    """Whether somebody answers on this port of the loopback address."""
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex(("127.0.0.1", port)) == 0
