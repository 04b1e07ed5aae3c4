"""How long a server on this machine waited for a core while a load ran, as Linux counts it.

Client and server share a small machine: what the client takes is missing there, and no clock of the client sees it.
"""

from __future__ import annotations

import contextlib
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from sglang_hydra.measure.bench.measures import Sample
from sglang_hydra.run.launch.head import is_own_address
from sglang_hydra.run.launch.listening import answering, listening
from sglang_hydra.run.launch.processes import tree_of

PERIOD_S = 0.01


class CoreWaits:
    """The waits of whoever answers at ``url``, and of its child processes; of none where that is another machine, or
    the system does not say it.

    Of each process the main thread counts: that of SGLang's HTTP server, scheduler and detokenizer holds their loop.
    """

    def __init__(self, url: str) -> None:
        self._files = [*_schedstats(url)]
        self._times: list[float] = []
        self._waits: list[Sequence[float]] = []

    def __del__(self) -> None:
        for handle in self._files:
            os.close(handle)

    def look(self) -> None:
        """Notes the waits so far, once in ``PERIOD_S``."""
        now = time.monotonic()
        if self._files and (not self._times or now - self._times[-1] >= PERIOD_S):
            last = self._waits[-1] if self._waits else [0.0] * len(self._files)
            self._waits.append([_waited(handle, before) for handle, before in zip(self._files, last, strict=True)])
            self._times.append(now)

    def longest(self, begin: float, end: float) -> float:
        """Returns the seconds that one process waited at most between two times (``time.monotonic``) of the run."""
        before = max(0, bisect_right(self._times, begin) - 1)
        after = min(len(self._times) - 1, bisect_left(self._times, end))
        return max(late - early for early, late in zip(self._waits[before], self._waits[after], strict=True))

    def put_into(self, sample: Sample) -> None:
        if self._files and sample.first is not None:
            sample.server_waits = self.longest(sample.sent, sample.first), self.longest(sample.first, sample.end)


def _schedstats(url: str) -> Iterator[int]:
    """Yields opened files: CPU time, wait for a core (both in ns) and time slices of a main thread (proc(5),
    schedstat)."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        if not os.path.exists("/proc/self/schedstat") or not is_own_address(host):
            return
    except (OSError, UnicodeError):  # a name that leads nowhere
        return
    owners = {each.pid for each in answering(host, listening(port) or ()) if each.pid is not None}
    for pid in set().union(*map(tree_of, owners)):
        with contextlib.suppress(OSError):
            yield os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)


def _waited(handle: int, before: float) -> float:
    """Returns seconds; as before for a process that has ended."""
    try:
        return int(os.pread(handle, 100, 0).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return before
