"""Cleans the lines of a log: removes colours, progress bars and the prefixes of Docker, Kubernetes, Slurm or Ray. The
length of a line is bounded, and so is the state between lines."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from sglang_hydra.run.diagnose.classes import LOG_LINES
from sglang_hydra.text.budget import read_json

LONGEST = 1 << 16
"""Characters read of a line. A ServerArgs of SGLang 0.5.23 takes about 25,000."""

_CHUNK = 1 << 20
_MOST_STREAMS = 256
_LEAST_ENDS = 5
_MOST_SEGMENTS = 64

# CSI sequences (colours, cursor), OSC (titles, links), and the two-character escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIXES = tuple(re.compile(pattern.replace("{time}", _TIME)) for pattern in LOG_LINES["prefixes"])
# SGLang's line header, [2025-06-26 07:25:31 DP4 TP4]; other releases of its tools add milliseconds or a level.
_HEADER = re.compile(
    r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(?P<rank>(?: [A-Z]{1,4}\d{1,5}){0,6})\] ?"
)
_HEADER_WITHIN = 160
_JSON_KEYS = ("log", "message", "msg", "textPayload", "line", "MESSAGE", "jsonPayload", "fields", "event", "body")
_JSON_MORE = ("exception", "exc_info", "traceback", "stack", "stack_trace", "error")
# supervisord announces each piece of a program's output; Ray counts the lines that it omitted.
_ANNOUNCED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} DEBG '[^']{1,80}' std(?:out|err) output:\s*$")
_REPEATED = re.compile(r" ?\[repeated \d{1,6}x across cluster\].*$")
_SHOWN_AT = re.compile(r'(\s+)(?:Traceback \(most recent call last\)|\[20\d\d-|  File "[^"]+", line \d)')
_ERROR_AT = re.compile(r"\s+(?=(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w*(?:Error|Exception): )")
_MOST_FRONTS = 16
_WARNING = re.compile(r"(?:^|: |\s)(?:[A-Z][A-Za-z]*Warning: |WARNING\b|WARN\b|\[W\d{3,4} |\[W )")


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
        if "\r" not in raw and "\n" not in raw:
            yield from self._line(number, raw)
            return
        segments = [segment for segment in re.split(r"[\r\n]", raw) if segment.strip()]
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
        yield self._headed(number, text, stream, time)

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

    def _headed(self, number: int, text: str, stream: str, time: str) -> Line:
        line = _headed(number, text, stream, time)
        if line.headed and text[:1] != "[":
            self._remember(text[: text.find("[20")])
        return line

    def _remember(self, front: str) -> None:
        if front.strip() and len(self._fronts) < _MOST_FRONTS:
            self._fronts = tuple(dict.fromkeys((*self._fronts, front)))


def _headed(number: int, text: str, stream: str, time: str) -> Line:
    rank, headed = "", False
    found = _HEADER.match(text) or (_HEADER.search(text[:_HEADER_WITHIN]) if "[20" in text[:_HEADER_WITHIN] else None)
    if found is not None:
        rank, headed, time = found["rank"].strip(), True, found["time"]
        stream = stream or text[: found.start()].strip()
        text = text[found.end() :]
    elif text.lstrip().startswith(("| ", "+-+--")):
        text = re.sub(r"^\s*[|+](?:-[+-]*)? ?", "", text)  # the frame that Python draws around an exception group
    return Line(number, text, stream, rank, headed, _WARNING.search(text[:400]) is not None, time)


def _from_json(raw: str) -> str:
    """Returns the message of a line that a log driver wrapped into JSON; other lines unchanged."""
    try:
        record = read_json(raw, "argument")
    except (ValueError, RecursionError):
        return raw
    if not isinstance(record, dict):
        return raw
    for key in _JSON_KEYS:
        value = record.get(key)
        if isinstance(value, dict):
            value = next((value[inner] for inner in _JSON_KEYS if isinstance(value.get(inner), str)), None)
        if isinstance(value, str):
            more = (record[other] for other in _JSON_MORE if isinstance(record.get(other), str))
            return "\n".join((value.rstrip("\n"), *more))
    return raw


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Numbers the lines from 1. Decodes bytes, and converts other objects by ``str``."""
    for number, line in enumerate(lines, 1):
        if isinstance(line, bytes):
            yield number, line[: LONGEST * 4].decode("utf-8", "replace")
        else:
            yield number, line if isinstance(line, str) else str(line)
