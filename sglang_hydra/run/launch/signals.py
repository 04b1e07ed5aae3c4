"""Signals that end a server, while there is one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from types import FrameType

FOR_MEMORY = ", as the system does where memory runs out"
"""What a SIGKILL means unless something else explains it."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_AGAIN_S = 1.0


@contextlib.contextmanager
def stopping_on_signals(
    stop: Callable[[], None], what: str = "the server", *, loud: bool = True
) -> Iterator[list[int]]:
    """Calls ``stop`` at each SIGINT, SIGTERM and SIGHUP while it lasts; gives the list of those that came.

    Outside of the main thread nothing changes. With ``loud`` a line on stderr names ``what`` is stopped.
    """
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        again = bool(received)
        received.append(number)
        stop()
        name = signal.Signals(number).name
        # Not through the display: it may be what was interrupted, and hold a lock.
        message = f"\n{name}: killing {what}\n" if again else f"\n{name}: stopping {what}, once more to kill it\n"
        with contextlib.suppress(OSError):
            if loud:
                os.write(2, message.encode())

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    # What is ignored stays ignored: nohup, and shells that start us in the background, ask for that.
    previous = {
        number: signal.signal(number, handle)
        for number in STOP_SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Waits until the process has ended; its exit code. A signal that comes meanwhile is answered within a second.

    A wait without a limit could miss it for good: Python runs a handler between two steps of its own, and a signal
    that comes just before the system's wait begins does not wake that wait.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_AGAIN_S)


def describe_exit(code: int) -> str:
    """Returns a server's exit code in words."""
    if code < 0:
        code = 128 - code
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return f"exit code {code}"
    hint = FOR_MEMORY if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"
