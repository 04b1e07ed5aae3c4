"""Implements non-blocking connections to one server: HTTP/1.1 and TLS on raw sockets, with the arrival time of bytes.

Requests are bytes made in advance. A client that parses every event with a library reads late, so each read does little
work here: the usual read is one complete chunk. The content is parsed when nothing waits to be read."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_LONGEST_HEAD = 1 << 16
_HEAD, _SIZE, _CHUNK, _CHUNK_END, _TRAILER, _LENGTH, _TO_THE_END, _ENDED = range(8)


class ProtocolError(Exception):
    """An answer that is not HTTP/1.1, or is shorter than announced."""


def request_head(url: str, path: str, headers: Mapping[str, str]) -> bytes:
    """Returns a POST request up to the value of Content-Length, for all bodies."""
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
    """Finds the content and the end of one answer in the read bytes. ``status`` is 0 until the head is complete.

    ``keeps`` says whether the connection can take another request."""

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
        return self._state == _HEAD and not self._rest

    def feed(self, data: bytes) -> bytes:
        """Returns the content in ``data``. Raises ProtocolError."""
        if self._state == _SIZE and not self._rest:
            line = data.find(b"\r\n", 0, 12)
            if line > 0:
                size = _size(data[:line])
                if size and line + 4 + size == len(data):
                    return data[line + 2 : -2]
        return b"".join(self._take(data))

    def at_end_of_stream(self) -> None:
        """Ends the answer after the server closed the connection. Raises ProtocolError for an incomplete answer."""
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
        """Parses a line, or the whole head."""
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


READ, WRITE = 1, 4  # of poll and epoll alike

CONNECTING, SECURING, OPEN = range(3)

_READ_BYTES = 1 << 16
_CMSG_BYTES = 64
_TIMESPEC = struct.Struct("qq")
# SO_TIMESTAMPNS of <asm/socket.h>; other processors use other numbers.
_STAMP = 35 if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64", "arm64") else None


class Poller:
    """Polls sockets for reading and writing; with epoll it sleeps with microsecond precision."""

    def __init__(self) -> None:
        self._epoll: Any = select.epoll() if hasattr(select, "epoll") else None
        polls: Any = self._epoll or select.poll()
        self.register, self.modify, self.unregister = polls.register, polls.modify, polls.unregister
        self._poll = polls.poll

    def ready(self, most: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = self._epoll.poll(0, most) if self._epoll else self._poll(0)
        return found

    def sleep(self, seconds: float) -> None:
        """Waits until a socket is ready, at most ``seconds``. epoll itself counts in milliseconds."""
        if self._epoll:
            select.select([self._epoll], (), (), seconds)
        else:
            self._poll(seconds * 1000)


class Tls:
    """Encrypts sent and decrypts received bytes, without a socket."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=host)
        self.ready = False

    def received(self, data: bytes) -> bytes:
        """Decrypts ``data``. Raises ssl.SSLError."""
        self._in.write(data)
        found = []
        try:
            if not self.ready:
                self._object.do_handshake()
                self.ready = True
            while piece := self._object.read(_READ_BYTES):
                found.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(found)

    def encrypted(self, data: bytes) -> bytes:
        self._object.write(data)
        return self._out.read()

    def pending(self) -> bytes:
        """Returns the bytes that the TLS protocol itself must send."""
        return self._out.read()


class Addresses:
    """The addresses of the server. ``problem`` is the failure to resolve them, or None."""

    def __init__(self, url: str, authorities: str | None) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self.context = ssl.create_default_context()
            if authorities is not None:
                self.context.load_verify_locations(authorities)
        self.problem: OSError | None = None
        self.addresses: list[Any] = []
        try:
            port = parts.port or (443 if self.context else 80)
            self.addresses = socket.getaddrinfo(self.host, port, type=socket.SOCK_STREAM)
        except OSError as failure:
            self.problem = failure

    def choose_address(self, timeout: float) -> None:
        """Keeps the first of several addresses (localhost has two) that accepts a connection."""
        for address in self.addresses if len(self.addresses) > 1 else ():
            with contextlib.suppress(OSError), socket.socket(address[0], socket.SOCK_STREAM) as trial:
                trial.settimeout(timeout)
                trial.connect(address[4])
                self.addresses = [address]
                return


class Connection:
    """One connection for one request at a time. Raises OSError if it cannot start."""

    __slots__ = ("_tls", "framing", "is_used", "last", "out", "request", "socket", "state")

    def __init__(self, server: Addresses) -> None:
        if server.problem is not None:
            raise server.problem
        family, _, _, _, address = server.addresses[0]
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _STAMP is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, _STAMP, 1)
        self._tls = Tls(server.context, server.host) if server.context else None
        self.state = CONNECTING
        self.request: Any = None
        self.framing = Framing()
        self.is_used = False
        self.out = b""
        self.last = time.monotonic()
        try:
            self.socket.connect(address)
        except BlockingIOError:
            pass
        except OSError:
            self.socket.close()
            raise

    def connected(self) -> None:
        """Completes the connection; raises OSError with the reason if it failed."""
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self.state = SECURING if self._tls else OPEN
        if self._tls:
            self._tls.received(b"")
            self.out = self._tls.pending()

    def send(self, data: bytes) -> None:
        """Sends as many bytes as possible; ``out`` keeps the rest."""
        self.out += self._tls.encrypted(data) if self._tls else data
        self.flush()

    def flush(self) -> None:
        try:
            self.out = self.out[self.socket.send(self.out) :]
        except BlockingIOError:
            pass
        except OSError:
            self.out = b""  # the server's answer, or its end, is read instead

    def read(self) -> tuple[bytes, float | None, bool]:
        """Returns the decrypted content, the kernel's arrival time of its last byte (wall clock, seconds; None without
        one), and whether the stream ended. Raises OSError; BlockingIOError without data."""
        data, notes, _, _ = self.socket.recvmsg(_READ_BYTES, _CMSG_BYTES)
        stamp = None
        if notes and notes[0][1] == _STAMP:
            seconds, nanos = _TIMESPEC.unpack(notes[0][2][:16])
            stamp = seconds + nanos * 1e-9
        if self._tls is None or not data:
            return data, stamp, not data
        clear = self._tls.received(data)
        if self._tls.ready:
            self.state = OPEN
        if answer := self._tls.pending():
            self.out += answer
            self.flush()
        return clear, stamp, False

    def is_stale(self) -> bool:
        """Returns whether the server has closed it since its last use, or uses TLS with unread bytes."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK) or self._tls is None
        except BlockingIOError:
            return False
        except OSError:
            return True
