"""Shares the answers of the machine and of the hub among several plans for one machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")

_kept: ContextVar[dict[Hashable, Any] | None] = ContextVar("asked_once", default=None)


@contextlib.contextmanager
def asking_once() -> Iterator[None]:
    """Keeps every answer of ``once`` for the block. All plans in the block must be for one environment."""
    token = _kept.set({} if (outer := _kept.get()) is None else outer)
    try:
        yield
    finally:
        _kept.reset(token)


def once(question: Hashable, ask: Callable[[], _Answer]) -> _Answer:
    """Returns ``ask()``, or the kept answer to the same ``question`` inside an ``asking_once`` block."""
    kept = _kept.get()
    if kept is None:
        return ask()
    if question not in kept:
        kept[question] = ask()
    answer: _Answer = kept[question]
    return answer
