"""While several plans are made for one machine, it is asked once, and so is the hub."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")

_kept: ContextVar[dict[Hashable, Any] | None] = ContextVar("asked_once", default=None)


@contextlib.contextmanager
def asking_once() -> Iterator[None]:
    """Keeps each answer that was given while it lasts. Plans made inside are for one environment."""
    token = _kept.set({} if (outer := _kept.get()) is None else outer)
    try:
        yield
    finally:
        _kept.reset(token)


def once(question: Hashable, ask: Callable[[], _Answer]) -> _Answer:
    """Returns ``ask()``, or what it gave for the same ``question`` before, where ``asking_once`` lasts."""
    kept = _kept.get()
    if kept is None:
        return ask()
    if question not in kept:
        kept[question] = ask()
    answer: _Answer = kept[question]
    return answer
