"""A log in the order and the lines in which it was written: opened where it came as one text of JSON or with its line
ends escaped, and turned round where it came with the newest line first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise

from sglang_hydra.text.budget import read_json

_OPENS = ('"', "'", "[", "{", "b'", 'b"')
_LEAST_ENDS = 5
_LOOKED_AT = 400
_LEAST_TIMES = 3
_MOST_TURNED = 1 << 18
"""Lines that are kept to turn a log round; one that is longer is read as it comes."""
_TIME = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")
_TIME_WITHIN = 80


def as_written(lines: Iterable[str]) -> Iterator[str]:
    """Returns the lines of a log as its server wrote them."""
    return _oldest_first(_opened(lines))


def _opened(lines: Iterable[str]) -> Iterator[str]:
    rest = iter(lines)
    for line in rest:
        if not isinstance(line, str) or not line.strip():
            yield line
            continue
        yield from _texts(line.strip()) or (line,)
        break
    yield from rest


def _texts(line: str) -> list[str]:
    """The lines in a whole log that came as one; empty for the first line of an ordinary one."""
    if not line.startswith(_OPENS) or (line.count("\\n") < _LEAST_ENDS and not line.startswith('["')):
        return []
    try:
        found = list(_of_json(read_json(line, "argument")))
    except (ValueError, RecursionError):
        found = [] if line[0] in "[{" else [_unescaped(line)]
    return [part for text in found for part in text.split("\n")]


def _of_json(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _of_json(one)
    elif isinstance(value, dict):
        yield max((one for one in value.values() if isinstance(one, str)), key=len, default="")


def _unescaped(line: str) -> str:
    ends = line.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t")
    return ends.replace('\\"', '"').replace("\\'", "'").strip("b\"'")


def _oldest_first(lines: Iterator[str]) -> Iterator[str]:
    first = list(islice(lines, _LOOKED_AT))
    if not _falls(first):
        return chain(first, lines)
    kept = [*first, *islice(lines, _MOST_TURNED)]
    return chain(reversed(kept), lines)


def _falls(lines: Iterable[str]) -> bool:
    """Whether the times of the lines go back, and never on."""
    times = [found[0] for line in lines if isinstance(line, str) and (found := _TIME.search(line[:_TIME_WITHIN]))]
    pairs = [(one, other) for one, other in pairwise(times) if one != other]
    return len(pairs) >= _LEAST_TIMES - 1 and all(one > other for one, other in pairs)
