"""HTTP/1.1 as the load needs it: requests as bytes made beforehand, and where an answer ends, found while it comes.

A client that waits for a library's parser at every event reads late. What is done at each read is here and is little:
the usual read is one whole chunk. The content itself is looked at when nothing waits to be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

_LONGEST_HEAD = 1 << 16
_HEAD, _SIZE, _CHUNK, _CHUNK_END, _TRAILER, _LENGTH, _TO_THE_END, _ENDED = range(8)


class ProtocolError(Exception):
    """The answer is no HTTP/1.1, or is shorter than it promised."""


def request_head(url: str, path: str, headers: Mapping[str, str]) -> bytes:
    """A POST request up to its length, for every body that goes there."""
    parts = urlsplit(url)
    lines = [
        f"POST {parts.path.rstrip('/')}{path} HTTP/1.1",
        f"Host: {parts.netloc.rpartition('@')[2]}",
        *(f"{name}: {' '.join(value.split())}" for name, value in headers.items()),
        *("Accept: */*", "Accept-Encoding: identity", "User-Agent: sglang-hydra", "Content-Type: application/json"),
        "Content-Length: ",
    ]
    return "\r\n".join(lines).encode()


def with_body(head: bytes, body: Mapping[str, object]) -> bytes:
    content = json.dumps(body).encode()
    return b"%b%d\r\n\r\n%b" % (head, len(content), content)


class Framing:
    """Finds the content and the end of one answer in what is read. ``status`` is 0 until the head is there.

    ``keeps`` says whether the connection can take another request after it.
    """

    __slots__ = ("_need", "_rest", "_state", "keeps", "status")

    def __init__(self) -> None:
        self.status = 0
        self.keeps = True
        self._state = _HEAD
        self._rest = b""
        self._need = 0

    @property
    def ended(self) -> bool:
        return self._state == _ENDED

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come yet."""
        return self._state == _HEAD and not self._rest

    def feed(self, data: bytes) -> bytes:
        """The content that ``data`` holds. Raises ProtocolError."""
        if self._state == _SIZE and not self._rest:
            line = data.find(b"\r\n", 0, 12)
            if line > 0:
                size = _size(data[:line])
                if size and line + 4 + size == len(data):
                    return data[line + 2 : -2]
        return b"".join(self._take(data))

    def at_end_of_stream(self) -> None:
        """The server has closed. Raises ProtocolError where the answer is not complete."""
        if self._state == _HEAD:
            raise ProtocolError("Server disconnected without sending a response." if not self._rest else "no HTTP")
        if self._state not in (_TO_THE_END, _ENDED):
            raise ProtocolError("peer closed connection without sending complete message body")
        self._state = _ENDED

    def _take(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        data, at, self._rest = self._rest + data, 0, b""
        while at < len(data) and self._state != _ENDED:
            if self._state in (_CHUNK, _LENGTH, _TO_THE_END):
                piece = data[at : at + self._need] if self._state != _TO_THE_END else data[at:]
                found.append(piece)
                at += len(piece)
                self._count(len(piece))
                continue
            mark = b"\r\n\r\n" if self._state == _HEAD else b"\r\n"
            end = data.find(mark, at)
            if end < 0:
                self._rest = data[at:]
                if len(self._rest) > _LONGEST_HEAD:
                    raise ProtocolError("a line without an end")
                return found
            self._line(data[at:end])
            at = end + len(mark)
        if at < len(data):
            self.keeps = False  # more than one answer
        return found

    def _count(self, size: int) -> None:
        if self._state == _TO_THE_END:
            return
        self._need -= size
        if not self._need:
            self._state = _CHUNK_END if self._state == _CHUNK else _ENDED

    def _line(self, line: bytes) -> None:
        """A line, or the whole head."""
        if self._state == _HEAD:
            self._read_head(line)
        elif self._state == _SIZE:
            self._need = _size(line.partition(b";")[0])
            self._state = _CHUNK if self._need else _TRAILER
        elif self._state == _CHUNK_END:
            if line:
                raise ProtocolError("a chunk is longer than it says")
            self._state = _SIZE
        elif not line:
            self._state = _ENDED

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        version, _, rest = first.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise ProtocolError("no HTTP/1.1")
        status = int(rest[:3])
        if status < 200:
            return  # another head follows
        self.status = status
        pairs = (line.partition(b":") for line in lines)
        fields = {name.strip().lower(): value.strip().lower() for name, _, value in pairs}
        self.keeps = version == b"HTTP/1.1" and fields.get(b"connection") != b"close"
        if status in (204, 304):
            self._state = _ENDED
        elif b"chunked" in fields.get(b"transfer-encoding", b""):
            self._state = _SIZE
        elif b"content-length" in fields:
            if not fields[b"content-length"].isdigit():
                raise ProtocolError("a length that is no number")
            self._need = int(fields[b"content-length"])
            self._state = _LENGTH if self._need else _ENDED
        else:
            self._state, self.keeps = _TO_THE_END, False


def _size(word: bytes) -> int:
    try:
        return int(word, 16)
    except ValueError:
        raise ProtocolError("a chunk without a size") from None
