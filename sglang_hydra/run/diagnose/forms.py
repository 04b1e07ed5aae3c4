"""Restores a log to its original lines and order: unpacks JSON, tables and escaped line ends, joins lines that a
terminal wrapped, and reverses a log whose newest line comes first."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise

from sglang_hydra.text.budget import read_json

_OPENS = ('"', "'", "[", "{", "b'", 'b"')
_LEAST_ENDS = 5
_LOOKED_AT = 400
_LEAST_TIMES = 3
_LONGEST_HEAD = 400
_MOST_TURNED = 1 << 18
"""The most lines kept to reverse a log. Later lines keep their order."""
_TIME = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")
_TIME_WITHIN = 80
# Names of the table column that holds the lines.
_MESSAGE = ("message", "msg", "log", "line", "content", "text", "body", "_raw", "textpayload", "@message", "event")
_WIDTHS = range(60, 241)
_LEAST_FULL = 4
# These texts begin a new line, however wide the previous one is.
_BEGINS = re.compile(r"\s*(?:\[|Traceback \(|File \"|\w+(?:\.\w+)*(?:Error|Exception)\b)|\s*$")


def as_written(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines of a log as its server wrote them."""
    return _oldest_first(_joined(_opened(lines)))


def _opened(lines: Iterable[str]) -> Iterator[str]:
    rest = iter(lines)
    for line in rest:
        if not isinstance(line, str) or not line.strip():
            yield line
            continue
        column = _column(line)
        if column is not None:
            yield from _of_table(line, rest, column)
            return
        yield from _texts(line.strip()) or (line,)
        break
    yield from rest


def _column(line: str) -> int | None:
    """Returns the number of the column with the log lines if ``line`` is the header of a CSV table, else None."""
    names = [name.strip().strip('"').casefold() for name in line.strip().lstrip("\ufeff").split(",")]
    plain = all(name.replace(" ", "").isidentifier() or name[:1] == "@" for name in names)
    is_head = plain and len(names) > 1 and len(line) <= _LONGEST_HEAD
    return next((at for at, name in enumerate(names) if name in _MESSAGE), None) if is_head else None


def _of_table(head: str, rest: Iterable[str], column: int) -> Iterator[str]:
    """Yields the lines in the rows of a CSV table, each after its row's time."""
    texts = (line if isinstance(line, str) else str(line) for line in rest)
    try:
        for row in csv.reader(line.rstrip("\r\n") + "\n" for line in texts):
            time = next((cell for at, cell in enumerate(row) if at != column and _TIME.match(cell)), "")
            for text in row[column].split("\n") if column < len(row) else ():
                yield f"{time.replace(' UTC', 'Z')} {text}" if time and text[:1] != "{" else text
    except csv.Error:  # a cell beyond what csv takes, or bytes that are no text
        yield from texts


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """Joins lines that a terminal or a page broke at its width: at the longest length, if many lines have it."""
    first = list(islice(lines, _LOOKED_AT))
    lengths = Counter(len(line.rstrip("\r\n")) for line in first if isinstance(line, str))
    width = max(lengths, default=0)
    rest = chain(first, lines)
    if width not in _WIDTHS or lengths[width] < _LEAST_FULL:
        yield from rest
        return
    begun = ""
    for line in rest:
        if begun and (_BEGINS.match(line) or len(begun) > 1 << 16):
            yield begun
            begun = ""
        begun += line.rstrip("\r\n")
        if len(line.rstrip("\r\n")) < width:
            yield begun
            begun = ""
    if begun:
        yield begun


def _texts(line: str) -> list[str]:
    """Splits a whole log that came as one line. Returns an empty list for an ordinary line."""
    if not line.startswith(_OPENS) or (line.count("\\n") < _LEAST_ENDS and not line.startswith('["')):
        return []
    try:
        found = list(_of_json(read_json(line, "argument")))
    except (ValueError, RecursionError):
        ends = line.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t")
        found = [] if line[0] in "[{" else [ends.replace('\\"', '"').replace("\\'", "'").strip("b\"'")]
    return [part for text in found for part in text.split("\n")]


def _of_json(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from chain.from_iterable(map(_of_json, value))
    elif isinstance(value, dict):
        yield max((one for one in value.values() if isinstance(one, str)), key=len, default="")


def _oldest_first(lines: Iterator[str]) -> Iterator[str]:
    """Reverses the lines if their times only decrease."""
    first = list(islice(lines, _LOOKED_AT))
    times = [found[0] for line in first if isinstance(line, str) and (found := _TIME.search(line[:_TIME_WITHIN]))]
    pairs = [(one, other) for one, other in pairwise(times) if one != other]
    if len(pairs) < _LEAST_TIMES - 1 or any(one < other for one, other in pairs):
        return chain(first, lines)
    return chain(reversed([*first, *islice(lines, _MOST_TURNED)]), lines)
