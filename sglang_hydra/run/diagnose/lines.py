"""Restores the lines of a log: unpacks JSON, tables and escaped line ends, joins lines that a terminal wrapped,
reverses a log whose newest line comes first, and removes colours, progress bars and the prefixes of Docker, Kubernetes,
Slurm or Ray. The length of a line is bounded, and so is the state between lines."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import BinaryIO, NamedTuple

from sglang_hydra.run.diagnose.classes import LOG_LINES
from sglang_hydra.text.budget import read_json

LONGEST = 1 << 16
"""Characters read of a line. A ServerArgs of SGLang 0.5.23 takes about 25,000."""
TIME = r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"

_CHUNK = 1 << 20
_MOST_STREAMS = 256
_MOST_SEGMENTS = 64
_MOST_FRONTS = 16
_LEAST_ENDS = 5
_OPENS = ('"', "'", "[", "{", "b'", 'b"')
_LOOKED_AT = 400
_LEAST_TIMES = 3
_LONGEST_HEAD = 400
_MOST_TURNED = 1 << 18
"""The most lines kept to reverse a log. Later lines keep their order."""
_TIME = re.compile(TIME)
_TIME_WITHIN = 80
# Names of the table column that holds the lines.
_MESSAGE = ("message", "msg", "log", "line", "content", "text", "body", "_raw", "textpayload", "@message", "event")
_WIDTHS = range(60, 241)
_LEAST_FULL = 4
# These texts begin a new line, however wide the previous one is.
_BEGINS = re.compile(r"\s*(?:\[|Traceback \(|File \"|\w+(?:\.\w+)*(?:Error|Exception)\b)|\s*$")

# CSI sequences (colours, cursor), OSC (titles, links), and the two-character escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_ZONED = rf"{TIME}(?:Z|[+-]\d\d:?\d\d)?"
_PREFIXES = tuple(re.compile(pattern.replace("{time}", _ZONED)) for pattern in LOG_LINES["prefixes"])
# SGLang's line header, [2025-06-26 07:25:31 DP4 TP4]; other releases of its tools add milliseconds or a level.
_HEADER = re.compile(
    r"\[(?P<time>20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(?P<rank>(?: [A-Z]{1,4}\d{1,5}){0,6})\] ?"
)
_HEADER_WITHIN = 160
_JSON_KEYS = ("log", "message", "msg", "textPayload", "line", "MESSAGE", "jsonPayload", "fields", "event", "body")
_JSON_MORE = ("exception", "exc_info", "traceback", "stack", "stack_trace", "error")
# supervisord announces each piece of a program's output; Ray counts the lines that it omitted.
_ANNOUNCED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} DEBG '[^']{1,80}' std(?:out|err) output:\s*$")
_REPEATED = re.compile(r" ?\[repeated \d{1,6}x across cluster\].*$")
_SHOWN_AT = re.compile(r'(\s+)(?:Traceback \(most recent call last\)|\[20\d\d-|  File "[^"]+", line \d)')
_ERROR_AT = re.compile(r"\s+(?=(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w*(?:Error|Exception): )")
_WARNING = re.compile(r"(?:^|: |\s)(?:[A-Z][A-Za-z]*Warning: |WARNING\b|WARN\b|\[W\d{3,4} |\[W )")
# The frame that Python draws around an exception group.
_DRAWN = re.compile(r"^\s*[|+](?:-[+-]*)? ?")


class Line(NamedTuple):
    """One line without its prefixes. ``stream`` names its writer (a container, a Slurm task), ``rank`` is SGLang's
    (``DP4 TP4``). ``headed``: SGLang's own header was in front. ``warning``: the line calls itself one. ``time`` is the
    time in front, as written, or empty."""

    number: int
    text: str
    stream: str = ""
    rank: str = ""
    headed: bool = False
    warning: bool = False
    time: str = ""


def read_lines(file: BinaryIO) -> Iterator[str]:
    """Yields the lines of a file of any size and content, each cut to ``LONGEST`` characters.

    Reads UTF-8, or UTF-16 after a byte order mark; replaces invalid bytes."""
    chunk = file.read(_CHUNK)
    # PowerShell redirects logs in UTF-16.
    encoding = "utf-16" if chunk[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    decode = codecs.getincrementaldecoder(encoding)("replace").decode
    escaped = b"\n" not in chunk[:LONGEST] and chunk.count(b"\\n") > _LEAST_ENDS and len(chunk) > LONGEST
    rest, dropping = "", False
    while chunk:
        following = file.read(_CHUNK)
        text = decode(chunk, not following)
        if escaped:  # a whole log in one text, longer than a line may be
            text = text.replace("\\n", "\n").replace('\\"', '"')
        *whole, rest = (rest + text).split("\n")
        yield from (line[:LONGEST] for line in whole[dropping:])
        dropping = dropping and not whole
        if len(rest) > LONGEST or (rest and not following):
            yield from () if dropping else (rest[:LONGEST],)
            rest, dropping = "", True
        chunk = following


def as_written(lines: Iterable[object]) -> Iterator[str]:
    """Returns the lines of a log as its server wrote them: opened, joined if many have the longest length (a terminal
    or a page broke them there), and reversed if their times only decrease. Converts bytes and other objects to text."""
    texts = (line[: LONGEST * 4].decode("utf-8", "replace") if isinstance(line, bytes) else str(line) for line in lines)
    opened = _opened(texts)
    first = list(islice(opened, _LOOKED_AT))
    whole: Iterator[str] = chain(first, opened)
    lengths = Counter(len(line.rstrip("\r\n")) for line in first)
    width = max(lengths, default=0)
    if width in _WIDTHS and lengths[width] >= _LEAST_FULL:
        whole = _joined(whole, width)
    times = [found[0] for line in first if (found := _TIME.search(line[:_TIME_WITHIN]))]
    pairs = [(one, other) for one, other in pairwise(times) if one != other]
    if len(pairs) < _LEAST_TIMES - 1 or any(one < other for one, other in pairs):
        return whole
    return chain(reversed(list(islice(whole, _MOST_TURNED))), whole)


def _opened(lines: Iterator[str]) -> Iterator[str]:
    """Opens a table, or a whole log in one line, by its first line with a text."""
    for line in lines:
        if line.strip():
            column = _column(line)
            yield from (_texts(line.strip()) or (line,)) if column is None else _of_table(line, lines, column)
            break
        yield line
    yield from lines


def _column(line: str) -> int | None:
    """Returns the number of the column with the log lines if ``line`` is the header of a CSV table, else None."""
    names = [name.strip().strip('"').casefold() for name in line.strip().lstrip("\ufeff").split(",")]
    plain = all(name.replace(" ", "").isidentifier() or name[:1] == "@" for name in names)
    is_head = plain and len(names) > 1 and len(line) <= _LONGEST_HEAD
    return next((at for at, name in enumerate(names) if name in _MESSAGE), None) if is_head else None


def _of_table(head: str, rest: Iterator[str], column: int) -> Iterator[str]:
    """Yields the lines in the rows of a CSV table, each after its row's time."""
    try:
        for row in csv.reader(line.rstrip("\r\n") + "\n" for line in rest):
            time = next((cell for at, cell in enumerate(row) if at != column and _TIME.match(cell)), "")
            for text in row[column].split("\n") if column < len(row) else ():
                yield f"{time.replace(' UTC', 'Z')} {text}" if time and text[:1] != "{" else text
    except csv.Error:  # a cell beyond what csv takes
        yield from rest


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


def _joined(lines: Iterator[str], width: int) -> Iterator[str]:
    begun = ""
    for line in lines:
        if begun and (_BEGINS.match(line) or len(begun) > LONGEST):
            yield begun
            begun = ""
        begun += line.rstrip("\r\n")
        if len(line.rstrip("\r\n")) < width:
            yield begun
            begun = ""
    if begun:
        yield begun


class Cleaner:
    """Turns raw lines into ``Line``s. Remembers the pieces of lines that a container runtime split, the indentation of
    the latest line with SGLang's header (a log pasted into a list is indented), and unknown prefixes in front of such
    headers."""

    def __init__(self) -> None:
        self._begun: dict[str, str] = {}
        self._indented = ""
        self._fronts: tuple[str, ...] = ()

    def clean(self, number: int, raw: str) -> Iterator[Line]:
        """Yields the lines in ``raw``: one, several separated by carriage returns, or none for an incomplete piece."""
        raw = raw[:LONGEST].rstrip("\r\n")
        if "\x1b" in raw:
            raw = _ESCAPES.sub("", raw)
        if raw.startswith("{") and raw.endswith("}"):
            raw = _from_json(raw)
        elif raw.endswith("output:") and _ANNOUNCED.match(raw):
            return
        elif "x across cluster]" in raw:
            raw = _REPEATED.sub("", raw)
        segments = [segment for segment in raw.replace("\r", "\n").split("\n") if segment.strip()]
        for segment in segments[-_MOST_SEGMENTS:]:
            yield from self._line(number, segment)

    def _line(self, number: int, text: str) -> Iterator[Line]:
        if text[:1] == "[" or text[:1].isspace():
            text = self._outdented(text)
        stream, begun, time = "", False, ""
        if self._fronts and text.startswith(self._fronts):
            front = next(front for front in self._fronts if text.startswith(front))
            stream, text = front.strip(), text[len(front) :]
        for _ in range(4):
            found = next((match for prefix in _PREFIXES if (match := prefix.match(text))), None)
            if found is None:
                break
            names = found.groupdict()
            time = names.pop("time", None) or time
            if "stern" in names:
                self._remember(found[0])
            begun = begun or names.pop("part", None) == "P"
            stream = next((name for name in names.values() if name), stream)
            text = text[found.end() :]
        if begun or stream in self._begun:
            text = (self._begun.pop(stream, "") + text)[:LONGEST]
            if begun:
                if len(self._begun) < _MOST_STREAMS:
                    self._begun[stream] = text
                return
        near = text[:_HEADER_WITHIN]
        header = _HEADER.search(near) if "[20" in near else None
        rank = ""
        if header is not None:
            front, rank, time = text[: header.start()], header["rank"].strip(), header["time"]
            if front[:1] != "[":
                self._remember(front)
            stream, text = stream or front.strip(), text[header.end() :]
        elif text.lstrip().startswith(("| ", "+-+--")):
            text = _DRAWN.sub("", text)
        yield Line(number, text, stream, rank, header is not None, _WARNING.search(text[:400]) is not None, time)

    def _outdented(self, text: str) -> str:
        """Removes the indentation of the latest header or traceback from ``text``."""
        if _HEADER.match(text):
            self._indented = ""
        elif text[:1].isspace():
            found = _SHOWN_AT.match(text)
            if found and (text[found.end(1)] == "[" or len(found[1]) > len(self._indented)):
                self._indented = found[1]
            elif not self._indented and (error := _ERROR_AT.match(text)):
                return text[error.end() :]
        return text.removeprefix(self._indented)

    def _remember(self, front: str) -> None:
        if front.strip() and len(self._fronts) < _MOST_FRONTS:
            self._fronts = tuple(dict.fromkeys((*self._fronts, front)))


def _from_json(raw: str) -> str:
    """Returns the message of a line that a log driver wrapped into JSON; other lines unchanged."""
    try:
        record = read_json(raw, "argument")
    except (ValueError, RecursionError):
        return raw
    for key in _JSON_KEYS if isinstance(record, dict) else ():
        value = record.get(key)
        if isinstance(value, dict):
            value = next((value[inner] for inner in _JSON_KEYS if isinstance(value.get(inner), str)), None)
        if isinstance(value, str):
            more = (record[other] for other in _JSON_MORE if isinstance(record.get(other), str))
            return "\n".join((value.rstrip("\n"), *more))
    return raw
