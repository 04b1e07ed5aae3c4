"""Small words for messages: the nearest name, a number or a plural as people write it, a long text cut short."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

SURE = 0.8
"""The least share of letters that a mistyped name has in common with the one that was meant, for a correction; names
that are less like it are listed."""
_WIDTH = 100
_MOST_LISTED = 5
_SHORT = 4
"""Names this short match only candidates that start with or contain them: ``time`` is not ``image``."""
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?(k|M|G|T|Ki|Mi|Gi|Ti)")
_FACTORS: dict[str, int] = {
    **{letter: 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)},
}


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was surely meant: one that is only spelled otherwise, or is mistyped by a few letters and is nearer
    than all others. None where that is not sure: ``several_near`` has the names to list."""
    near = several_near(name, names := list(names), 2)
    begun = [one for one in names if _flat(one).startswith(_flat(name)) and len(_flat(one)) <= 2 * len(_flat(name))]
    if len(begun) == 1 and not (near and _flat(near[0]) == _flat(name)):
        return begun[0]
    sure = [_sureness(name, one) for one in near]
    return near[0] if near and sure[0] >= SURE and (len(near) == 1 or sure[0] > sure[1]) else None


def several_near(name: str, names: Iterable[str], most: int) -> list[str]:
    """The names that may have been meant, the nearest first; one that is only spelled otherwise is alone."""
    import difflib

    flat = {_flat(candidate): candidate for candidate in names}
    wanted = _flat(name)[:_WIDTH]
    if wanted in flat:
        return [flat[wanted]]
    comparable = [one for one in flat if len(wanted) > _SHORT or one[:1] == wanted[:1] or wanted in one]
    return [flat[close] for close in difflib.get_close_matches(wanted, comparable, n=most)]


def _sureness(typed: str, name: str) -> float:
    """The share of letters that both have in one order; 1 for the same letters in another order, 0 where the first
    letter is another one (precision is not revision), or the numbers differ by more than a digit that is repeated
    (h1000 is h100, qwen3_9b is not qwen3_8b)."""
    import difflib

    one, other = _flat(typed)[:_WIDTH], _flat(name)
    if _numbers(one) != _numbers(other) or one[:1] != other[:1]:
        return 0.0
    return 1.0 if sorted(one) == sorted(other) else difflib.SequenceMatcher(None, other, one).ratio()


def _numbers(flat: str) -> list[str]:
    return [re.sub(r"(.)\1+", r"\1", digits) for digits in re.findall(r"\d+", flat)]


def some_of(name: str, names: Iterable[str], command: str) -> str:
    """The names that there are: all of a few, else the five that are nearest, how many more, and what lists them."""
    import difflib

    every = list(names)
    if len(every) <= _MOST_LISTED + 1:
        return ", ".join(every)
    near = difflib.get_close_matches(name[:_WIDTH].lower(), every, n=_MOST_LISTED, cutoff=0.0)
    return f"{', '.join(near)} and {len(every) - len(near)} more: {command}"


def size_of(text: str) -> int | None:
    """The number that SGLang 0.5.10 and later read in ``32k`` (32,000) or ``32Ki`` (32,768); None for anything else.

    Case counts, and ``1.5Ki`` is none (sglang/srt/utils/common.py, human_readable_int).
    """
    matched = _SIZE.fullmatch(text)
    if matched is None or (matched[2] and matched[3].endswith("i")):
        return None
    fraction = matched[2] or ""
    return int(matched[1] + fraction) * _FACTORS[matched[3]] // int(10 ** len(fraction))


def both_sizes(text: str) -> str:
    """``32k = 32,000; 32Ki = 32,768`` for a size."""
    other = f"{text[:-1]}{text[-1].upper()}i" if text[-1] != "i" else text[:-1].replace("K", "k")
    return "; ".join(f"{word} = {size:,}" for word in (text, other) if (size := size_of(word)) is not None)


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


def install_command(extra: str) -> str:
    """Returns the command that adds an extra: to the package that is installed, which asks no registry for it, or to
    that of the checkout in which ``serve.py`` was started."""
    return f"pip install '{'sglang-hydra' if program() == 'sglang-hydra' else '.'}[{extra}]'"


@functools.lru_cache(maxsize=8192)
def _flat(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def is_digits(text: str) -> bool:
    """Whether ``int`` reads ``text`` as a whole number, 0 or above. ``"²".isdigit()`` is true, and Python refuses to
    read more than 4300 digits."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None
