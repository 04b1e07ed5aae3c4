"""Handles the signals that end a server, while one runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from types import FrameType

FOR_MEMORY = ", as the system does where memory runs out"
"""The meaning of a SIGKILL unless something else explains it."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_AGAIN_S = 1.0


@contextlib.contextmanager
def stopping_on_signals(
    stop: Callable[[], None], what: str = "the server", *, loud: bool = True
) -> Iterator[list[int]]:
    """Calls ``stop`` at each SIGINT, SIGTERM and SIGHUP during the block; yields the list of received signals.

    Does nothing outside the main thread. With ``loud``, stderr says that ``what`` is being stopped."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        again = bool(received)
        received.append(number)
        stop()
        name = signal.Signals(number).name
        # Not through the display: the signal may have interrupted it while it holds a lock.
        message = f"\n{name}: killing {what}\n" if again else f"\n{name}: stopping {what}, once more to kill it\n"
        with contextlib.suppress(OSError):
            if loud:
                os.write(2, message.encode())

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    # Ignored signals stay ignored: nohup and shells with background jobs rely on it.
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
    """Waits for the process to end and returns its exit code. Handles a signal within a second.

    A wait without a timeout could miss a signal for good: Python runs handlers between its own steps, and a signal just
    before the system's wait begins does not interrupt that wait."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_AGAIN_S)


def describe_exit(code: int) -> str:
    """Describes a server's exit code in words."""
    if code < 0:
        code = 128 - code
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return f"exit code {code}"
    hint = FOR_MEMORY if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"
