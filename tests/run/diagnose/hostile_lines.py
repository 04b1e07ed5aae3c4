"""Lines made from a regular expression so that matching it costs the most: what begins to match, over and over."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

try:
    from re import _constants as codes  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as codes  # type: ignore[no-redef]
    import sre_parse as parser  # type: ignore[no-redef]

LONGEST = 8192
_AGAIN = 12


def hostile_lines(pattern: str, needle: str = "") -> Iterator[str]:
    """Lines of 8 KiB for ``pattern``: each run of its pieces, up to all of them, again and again and cut off."""
    pieces = [_example(piece) for piece in _pieces(parser.parse(pattern))]
    pieces = [piece for piece in pieces if piece]
    seen = set()
    for start in range(len(pieces)):
        for end in range(start + 1, len(pieces) + 1):
            for between in ("", " "):
                run = between.join(pieces[start:end])
                before = between.join(pieces[:start])
                if run and (before, run) not in seen:
                    seen.add((before, run))
                    yield _filled(f"{needle} {before}", run)
    yield _filled(needle, " ")
    if needle:
        yield _filled("", f"{needle} ")


def _filled(front: str, run: str) -> str:
    return (front + run * (LONGEST // len(run)))[: LONGEST - 1] + "\x00"


def _pieces(tree: Any) -> Iterator[Any]:
    """The parts of an expression, those inside of groups and repetitions as well as the whole of these."""
    for item in tree:
        kind, value = item
        if kind is codes.SUBPATTERN:
            yield from _pieces(value[-1])
        elif kind is codes.BRANCH:
            for branch in value[1]:
                yield from _pieces(branch)
        else:
            yield item


def _example(item: Any) -> str:
    """A text that a part matches."""
    kind, value = item
    if kind is codes.LITERAL:
        return chr(value)
    if kind is codes.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if kind is codes.ANY:
        return "a"
    if kind is codes.IN:
        return _of_set(value)
    if kind in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, most, inner = value
        times = max(int(least), min(_AGAIN, int(most)) if most is not codes.MAXREPEAT else _AGAIN)
        return "".join(map(_example, inner)) * times
    if kind is codes.SUBPATTERN:
        return "".join(map(_example, value[-1]))
    if kind is codes.BRANCH:
        return "".join(map(_example, value[1][0]))
    return ""


def _of_set(members: Sequence[Any]) -> str:
    negated = members[0][0] is codes.NEGATE
    candidates = "a0 _-.:/(\"'=AzZ9\t"
    charset = re.compile("[" + "".join(_spelled(one) for one in members if one[0] is not codes.NEGATE) + "]")
    return next((one for one in candidates if (charset.match(one) is None) == negated), "~")


def _spelled(member: Any) -> str:
    kind, value = member
    if kind is codes.LITERAL:
        return re.escape(chr(value))
    if kind is codes.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    names = {codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_WORD: r"\w"}
    names |= {codes.CATEGORY_NOT_DIGIT: r"\D", codes.CATEGORY_NOT_SPACE: r"\S", codes.CATEGORY_NOT_WORD: r"\W"}
    return names[value]
