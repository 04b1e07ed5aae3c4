"""For all tests: the signals that they send arrive, however the run itself was started."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """nohup and background shells start programs with signals ignored, and every child inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
