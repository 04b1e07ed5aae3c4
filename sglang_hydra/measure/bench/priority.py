"""Real-time priority for a process of the load, so that other programs on the machine do not make its requests late."""

from __future__ import annotations

import contextlib
import os
import resource
import signal

_MOST_BUSY_US = 200_000


def take_real_time() -> None:
    """Takes it where the system grants it (root with CAP_SYS_NICE, an rtprio limit) and there is a second core.
    Computing for 0.2 s without a pause gives it back, so that nothing else starves."""
    if not hasattr(resource, "RLIMIT_RTTIME") or len(os.sched_getaffinity(0)) < 2:
        return
    signal.signal(signal.SIGXCPU, lambda *_: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0)))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_RTTIME, (_MOST_BUSY_US, resource.getrlimit(resource.RLIMIT_RTTIME)[1]))
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def is_real_time() -> bool:
    """Whether this process has it now."""
    return hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) == os.SCHED_RR
