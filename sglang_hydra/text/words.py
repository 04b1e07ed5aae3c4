"""Small words for messages: the nearest name, a number or a plural as people write it, a long text cut short."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

_WIDTH = 100


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: ignoring case and separators first, then by similarity."""
    return next(iter(several_near(name, names, 1)), None)


def several_near(name: str, names: Iterable[str], most: int) -> list[str]:
    """The names that were probably meant, the nearest first; one that is only spelled otherwise is alone."""
    import difflib

    flat = {_flat(candidate): candidate for candidate in names}
    wanted = _flat(name)[:_WIDTH]
    if wanted in flat:
        return [flat[wanted]]
    return [flat[close] for close in difflib.get_close_matches(wanted, flat, n=most)]


def number(value: Any) -> str:
    """``143771`` for 143771.0: a float that is whole loses its point; anything else is written as Python does."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def typed(value: Any) -> str:
    """A value as one types it, for a message: null, true and bare words; anything else is written as Python does."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value else repr(value)


def short(text: str, width: int = _WIDTH) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def program() -> str:
    """How this program was started, for commands that a message suggests."""
    return "python serve.py" if os.path.basename(sys.argv[0]) == "serve.py" else "sglang-hydra"


def _flat(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def is_digits(text: str) -> bool:
    """Whether ``int`` reads ``text`` as a whole number, 0 or above. ``"²".isdigit()`` is true, and Python refuses to
    read more than 4300 digits."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None
