"""Non-blocking connections to one server: raw sockets, when their bytes arrived, and TLS on top of them."""

from __future__ import annotations

import os
import platform
import select
import socket
import ssl
import struct
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from sglang_hydra.measure.bench.http1 import Framing

READ, WRITE = 1, 4  # of poll and epoll alike

CONNECTING, SECURING, OPEN = range(3)

_READ_BYTES = 1 << 16
_CMSG_BYTES = 64
_TIMESPEC = struct.Struct("qq")
# SO_TIMESTAMPNS of <asm/socket.h>; other processors have other numbers.
_STAMP = 35 if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64", "arm64") else None


class Poller:
    """Which sockets can be read or written; sleeps to the microsecond where there is epoll."""

    def __init__(self) -> None:
        self._epoll: Any = select.epoll() if hasattr(select, "epoll") else None
        polls: Any = self._epoll or select.poll()
        self.register, self.modify, self.unregister = polls.register, polls.modify, polls.unregister
        self._poll = polls.poll

    def ready(self, most: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = self._epoll.poll(0, most) if self._epoll else self._poll(0)
        return found

    def sleep(self, seconds: float) -> None:
        """Until something is ready, at most so long. epoll itself counts in milliseconds."""
        if self._epoll:
            select.select([self._epoll], (), (), seconds)
        else:
            self._poll(seconds * 1000)


class Tls:
    """Encrypts what is sent and decrypts what was received, without a socket of its own."""

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
        """Returns the bytes that the protocol itself has to send."""
        return self._out.read()


class Addresses:
    """Where the connections go. ``problem`` says why they cannot."""

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
        """Of several addresses (localhost has two), the first at which somebody listens."""
        for address in self.addresses if len(self.addresses) > 1 else ():
            with socket.socket(address[0], socket.SOCK_STREAM) as trial:
                trial.settimeout(timeout)
                try:
                    trial.connect(address[4])
                except OSError:
                    continue
                self.addresses = [address]
                return


class Connection:
    """One connection, which takes one request at a time. Raises OSError where it cannot even be begun."""

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
        """The connection stands, or OSError is raised for why it does not."""
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self.state = SECURING if self._tls else OPEN
        if self._tls:
            self._tls.received(b"")
            self.out = self._tls.pending()

    def send(self, data: bytes) -> None:
        """Sends as much as it can; ``out`` holds what is left."""
        self.out += self._tls.encrypted(data) if self._tls else data
        self.flush()

    def flush(self) -> None:
        try:
            self.out = self.out[self.socket.send(self.out) :]
        except BlockingIOError:
            pass
        except OSError:
            self.out = b""  # what the server says, or that it has gone, is read

    def read(self) -> tuple[bytes, float | None, bool]:
        """Returns the decrypted content; when its last byte did, on the wall clock in seconds, as the kernel noted it
        (None: it does not); and whether that was the end. Raises OSError, BlockingIOError where there is nothing."""
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
        """Whether the server has closed it since it was last used."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK) or self._tls is None
        except BlockingIOError:
            return False
        except OSError:
            return True
