"""Compares two releases."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

_PARTS = re.compile(
    r"(?P<numbers>\d{1,9}(?:\.\d{1,9})*)(?:[.-]?(?P<kind>a|b|rc|post|dev)[.-]?(?P<count>\d{0,9}))?(?:\+.*)?"
)
_SAME_CODE = re.compile(r"\+(?:cu|rocm|cpu|xpu|npu|hpu|musa)[\d.]*")
"""Local version parts that name a build's hardware; any other part (``+mine``) may mean other code."""
FIRST_NUMBERED = ((0, 1), 0, 0)
"""The sort key below all releases: builds with a smaller one are custom (main, as 0.0.0.dev1)."""
_KINDS = {"dev": -4, "a": -3, "b": -2, "rc": -1, None: 0, "post": 1}


@functools.lru_cache(maxsize=512)
def release_key(version: str) -> tuple[tuple[int, ...], int, int] | None:
    """Returns the sort key of a release, in the order of PEP 440; None for a text that is no version."""
    match = _PARTS.fullmatch(version.removeprefix("v"))
    if match is None:
        return None
    numbers = [int(part) for part in match["numbers"].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), _KINDS[match["kind"]], int(match["count"] or 0)


def same_release(version: str, other: str) -> bool:
    """Returns whether both are one release, also as builds for other hardware (0.5.2+cu126). A custom build
    (0.5.2+mine) is another release: its code is unknown."""
    return version == other or _of_release(version) == _of_release(other)


@functools.lru_cache(maxsize=512)
def _of_release(version: str) -> tuple[object, str]:
    plain, plus, local = version.partition("+")
    own = "" if _SAME_CODE.fullmatch(plus + local) else local
    return release_key(plain) or plain, own


def is_candidate_of(version: str, final: str) -> bool:
    """Returns whether ``version`` is a pre-release of ``final`` (0.5.3rc1, 0.5.3.dev2)."""
    mine, theirs = release_key(version), release_key(final)
    return mine is not None and theirs is not None and mine[0] == theirs[0] and mine[1] < 0 == theirs[1]


def reached(version: str, releases: Iterable[str]) -> frozenset[str]:
    """Returns those of ``releases`` that ``version`` is, or comes after."""
    return frozenset(each for each in releases if at_least(version, each))


def at_least(version: str, other: str) -> bool:
    """Returns whether ``version`` is ``other`` or later; False for a text that is no version."""
    mine, theirs = release_key(version), release_key(other)
    return mine is not None and theirs is not None and mine >= theirs


def holds_between(version: str, since: str | None, until: str | None) -> bool:
    """Returns whether ``version`` is ``since`` or later, and before ``until``; None sets no limit."""
    return (since is None or at_least(version, since)) and (until is None or not at_least(version, until))
