"""Repeats an action every few seconds in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Repeating:
    """Calls ``act`` every ``seconds`` in its own thread, from ``start`` to ``end`` or until it returns True.

    The first call comes one interval after the start, or with ``at_once`` at the start."""

    def __init__(self, act: Callable[[], bool | None], seconds: float, name: str, *, at_once: bool = False) -> None:
        self._act, self._seconds, self._at_once = act, seconds, at_once
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stops the calls. Returns after the current call has ended."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while self._at_once or not self._over.wait(self._seconds):
            self._at_once = False
            if self._act():
                return
