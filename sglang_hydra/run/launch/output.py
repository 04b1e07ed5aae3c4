"""Reads a server's output line by line: masks keys, shows and logs the lines within bounds, and keeps the lines that a
diagnosis needs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO

from sglang_hydra.arguments.secrets import without_secrets
from sglang_hydra.run.launch.log import BoundedLog

_LINE_LIMIT = 1 << 16
# Characters kept in memory for a diagnosis: of the start and of the end of the output.
_KEPT_AT_START, _KEPT_AT_END = 1 << 19, 1 << 20
# Masking every "a" would hide the log and not the key.
_SHORTEST_SECRET = 4
_MASK = b"***"
# A redrawn progress bar: "Loading safetensors checkpoint shards:  40% Completed | 2/5 [...".
_PERCENT = re.compile(rb"\b(\d{1,3})%")
_BAR = 400


class Output:
    """Follows a server's stdout and stderr, each in a thread, until they close.

    Calls ``show`` with the name of the stream and each complete line. ``milestones`` maps texts to words for the
    progress, in order; ``reached`` gets the words of each milestone seen before a later one, and ``milestone`` is the
    last one. A text that is overwritten in place (a progress bar) is neither shown nor logged; its percentage is in
    ``milestone``. Calls ``warn`` once when the log cannot be written. No failure stops the reading."""

    def __init__(
        self,
        show: Callable[[str, str], None],
        milestones: Mapping[str, str],
        log: BoundedLog | None = None,
        secret: str | None = None,
        *,
        reached: Callable[[str], None] = lambda words: None,
        warn: Callable[[str], None] = lambda words: None,
    ) -> None:
        self._show, self._reached, self._warn, self._log = show, reached, warn, log
        order = list(dict.fromkeys(milestones.values()))
        self._signs = [(sign, order.index(words), words) for sign, words in milestones.items()]
        self._last, self._at = len(order) - 1, -1
        self._secrets = _spellings(secret)
        self._hold_back = max((len(spelling) for spelling in self._secrets), default=1) - 1
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._start: list[str] = []
        self._start_size = self._end_size = 0
        self._end: deque[str] = deque()
        self._warned = False
        self._words = self._percent = ""

    @property
    def milestone(self) -> str:
        """Returns the server's progress: ``loading weights 40 %``; empty before the first milestone."""
        return f"{self._words} {self._percent} %" if self._percent else self._words

    @property
    def lines(self) -> list[str]:
        """Returns the first and the last lines so far; all lines up to about 1.5 MiB of output."""
        with self._lock:
            return [*self._start, *self._end]

    @property
    def log_problem(self) -> str | None:
        """Returns why lines are missing in the log, and their number; None for a complete log."""
        log = self._log
        return f"{log.problem}: {log.lost} lines are not in it" if log is not None and log.lost else None

    def follow(self, name: str, pipe: IO[bytes]) -> None:
        thread = threading.Thread(target=self._read, args=(name, pipe), name=f"server-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self, timeout_s: float) -> None:
        """Waits at most ``timeout_s`` seconds for each pipe to drain, and closes the log."""
        for thread in self._threads:
            thread.join(timeout_s)
        with self._lock:
            if self._log is not None:
                self._log.close()

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        pending = b""
        while chunk := os.read(pipe.fileno(), 1 << 16):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._line(name, self._blot(line))
            if lines or b"\r" in pending:
                found = _PERCENT.findall(pending[-_BAR:])
                self._percent = found[-1].decode() if found else ""
            if len(pending) > _LINE_LIMIT + self._hold_back:
                pending = self._blot(pending)
                cut = max(0, len(pending) - self._hold_back)
                if cut:
                    self._line(name, pending[:cut])
                pending = pending[cut:]
        if pending:
            self._line(name, self._blot(pending))
        pipe.close()

    def _blot(self, line: bytes) -> bytes:
        for spelling in self._secrets:
            line = line.replace(spelling, _MASK)
        return line

    def _line(self, name: str, line: bytes) -> None:
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
        text = line.decode("utf-8", "replace")
        if (hidden := without_secrets(text)) != text:
            text, line = hidden, hidden.encode()
        with self._lock:
            self._keep(text)
            if self._log is not None:
                self._log.write(line + b"\n")
            # A closed terminal must not block the pipe of the server.
            with contextlib.suppress(OSError, ValueError):
                self._show(name, text)
                self._report_progress(text)
                if self._log is not None and self._log.problem and not self._warned:
                    self._warned = True
                    self._warn(f"the log {self._log.path} cannot be written: {self._log.problem}; the server goes on")

    def _keep(self, text: str) -> None:
        if self._start_size + len(text) <= _KEPT_AT_START:
            self._start_size += len(text) + 1
            self._start.append(text)
            return
        self._start_size = _KEPT_AT_START
        self._end_size += len(text) + 1
        self._end.append(text)
        while self._end_size > _KEPT_AT_END:
            self._end_size -= len(self._end.popleft()) + 1

    def _report_progress(self, text: str) -> None:
        if self._at >= self._last:
            return
        for sign, place, words in self._signs:
            # Each rank prints it again, and some ranks begin a part after others have ended it.
            if place > self._at and sign in text:
                self._at, self._words, self._percent = place, words, ""
                self._reached(words)


def _spellings(secret: str | None) -> list[bytes]:
    """Returns the forms in which programs print a text, longest first."""
    if secret is None or len(secret) < _SHORTEST_SECRET:
        return []
    spelled = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]}
    return sorted((text.encode("utf-8", "surrogateescape") for text in spelled), key=len, reverse=True)
