"""Puts a share of a load on a server, in a process of its own: sends on time and records the arrival of bytes.

Uses one thread and raw sockets. Stores each read with its time, and parses it piece by piece when nothing waits to be
read, so that no answer waits for the JSON of another one. The garbage collector is off during a run. The process
measures its own delay continuously."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable

from sglang_hydra.measure.bench.connections import (
    CONNECTING,
    OPEN,
    READ,
    WRITE,
    Addresses,
    Connection,
    Framing,
    Poller,
    ProtocolError,
)
from sglang_hydra.measure.bench.measures import Sample
from sglang_hydra.measure.bench.messages import Begin, Order, Orders, Own, Setup, Unpacker, packed
from sglang_hydra.measure.bench.wires import Answer, Arrival

_TICK_S = 0.01
_PATIENCE_S = 5.0
_LONGEST_IDLE_S = 2.0
_MOST_UNREAD = 64 << 20
_CLOCKS_AGREE_S = 0.001
_LATE_S = 0.001
_SPIN_S = 0.0005  # a sleep ends late: the last moment before a request is waited for awake

clock = time.monotonic


def main(control: int, taken: int) -> None:
    """Runs one load after the other until the socket ``control`` is closed. Writes a byte to ``taken`` for each started
    request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    talk = socket.socket(fileno=control)
    os.set_blocking(taken, False)
    unpacker = Unpacker()
    while True:
        talk.setblocking(True)
        data = talk.recv(_MOST_UNREAD)
        if not data:
            sys.exit(0)
        messages = deque(unpacker.feed(data))
        while messages:
            talk.setblocking(False)
            run = LoadRun(messages.popleft(), talk, unpacker, taken)
            run.receive(messages)
            run.run()


class Exchange:
    """A request in flight, and its answer so far."""

    __slots__ = ("again", "answer", "content", "is_unreadable")

    def __init__(self, order: Order, answer: Answer) -> None:
        self.content = order.content
        self.again = b""
        self.answer = answer
        self.is_unreadable = False


class LoadRun:
    def __init__(self, setup: Setup, talk: socket.socket, unpacker: Unpacker, taken: int) -> None:
        self._setup, self._talk, self._unpacker, self._taken = setup, talk, unpacker, taken
        self._poller = Poller()
        self._poller.register(talk.fileno(), READ)
        self._server = Addresses(setup.url, setup.authorities)
        self._connections: dict[int, Connection] = {}
        self._idle: list[Connection] = []
        self._orders: deque[Order] = deque()
        self._has_all = False
        self._unread: deque[tuple[Exchange, bytes | None, Arrival, str | None]] = deque()
        self._unread_bytes = 0
        self._outbox = bytearray()
        self._begin: Begin | None = None
        self._flying = 0
        self._freed: deque[float] = deque()
        self._is_filling = False
        self._polled = self._seen = self._tick_at = self._look_at = clock()
        self.own = Own()

    def receive(self, messages: deque[object]) -> None:
        while messages:
            message = messages.popleft()
            if isinstance(message, Orders):
                self._orders.extend(message.orders)
                self._has_all = message.are_last
            elif isinstance(message, Begin):
                self._begin = message
                self._freed.extend([message.at] * (self._setup.slots or 0))
        if self._begin is not None:
            self._fill()

    def run(self) -> None:
        """Opens connections, reports ready, sends and reads until all answers end, and reports its own delays."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self._server.choose_address(min(_PATIENCE_S, self._setup.timeout))
        for _ in range(self._setup.opened):
            self._open_ahead()
        patience = clock() + min(_PATIENCE_S, self._setup.timeout)
        self._loop(lambda: clock() >= patience or all(each.state == OPEN for each in self._connections.values()))
        self._talk.setblocking(True)
        self._talk.sendall(packed("ready"))
        self._talk.setblocking(False)
        self._loop(lambda: self._begin is not None)
        self.own = Own()
        self._tick_at = clock() + _TICK_S
        used, began = time.process_time(), clock()
        self._loop(lambda: self._has_all and not self._flying and not self._orders and not self._unread)
        self.own.cpu = (time.process_time() - used) / max(1e-9, clock() - began)
        for connection in [*self._connections.values()]:
            self._close(connection)
        self._talk.setblocking(True)
        self._talk.sendall(self._outbox + packed(self.own))
        gc.enable()

    def _loop(self, is_over: Callable[[], bool]) -> None:
        """Reads first, sends the due requests, and parses one read at a time only then."""
        while not is_over():
            before = clock()
            ready = self._poller.ready(len(self._connections) + 4)
            now = clock()
            for handle, flags in ready:
                self._handle(handle, flags)
            self._polled = self._seen = before
            if now >= self._tick_at:
                self._tick(now)
            if self._begin is not None and self._orders and self._next_due() <= now:
                self._fill()
            if self._unread and (not ready or self._unread_bytes > _MOST_UNREAD):
                self._look()
            elif not ready:
                self._sleep(min(self._tick_at, self._next_due() - _SPIN_S))

    def _sleep(self, until: float) -> None:
        wait = until - clock()
        if wait > 0:
            self._poller.sleep(wait)
            woken = clock()
            # A sleep that ended late may have been late for as long before.
            held = woken - until
            self._seen = woken if held < _LATE_S else max(self._polled, until - held)

    def _next_due(self) -> float:
        """Returns the time of the next request, or of the next tick if a free slot decides."""
        slots = self._setup.slots
        if self._begin is None or not self._orders or (slots is not None and self._flying >= slots):
            return self._tick_at
        return self._orders[0].due or 0.0

    def _tick(self, now: float) -> None:
        self.own.lag.add(now - self._tick_at)
        self._tick_at = now + _TICK_S
        if self._begin is not None and now >= self._begin.until:
            self._fill()
        if self._outbox:
            self._flush_outbox()
        if now >= self._look_at:
            self._look_at = now + min(0.5, self._setup.timeout / 10)
            self._give_up(now)

    def _give_up(self, now: float) -> None:
        """Ends requests whose server is silent for longer than the timeout."""
        silent = [each for each in self._connections.values() if now - each.last > self._setup.timeout]
        for each in silent:
            if each.request is not None:
                each.request.again = b""
                kind = "Connect" if each.state != OPEN else "Write" if each.out else "Read"
                self._failed(each, f"{kind}Timeout: nothing for {self._setup.timeout:g} s")

    # Sending

    def _fill(self) -> None:
        """Sends the due requests while slots are free."""
        assert self._begin is not None
        if self._is_filling:  # a request that fails at once leaves its slot to the next
            return
        self._is_filling = True
        slots = self._setup.slots
        while self._orders and (slots is None or self._flying < slots):
            order, now = self._orders[0], clock()
            if not order.owed and max(order.due or 0.0, now) >= self._begin.until:
                self._orders.clear()
            elif (order.due is not None and order.due > now) or now < self._begin.at:
                break
            else:
                self._start(self._orders.popleft())
        self._is_filling = False

    def _start(self, order: Order) -> None:
        assert self._begin is not None
        self._flying += 1
        sample = Sample(order.asked_tokens, 0.0, order.due)
        request = Exchange(order, Answer(self._setup.wire, self._setup.stream, sample))
        connection = self._idle_one()
        could = max(order.due or 0.0, self._freed.popleft() if self._freed else self._begin.at)
        sample.sent = clock()
        sample.send_delay = max(0.0, sample.sent - could)
        self.own.send.add(sample.send_delay)
        try:
            connection = connection or self._open()
        except OSError as failure:
            self._end(request, f"ConnectError: {failure}")
        else:
            self._give(connection, request)
        with contextlib.suppress(BlockingIOError):
            os.write(self._taken, b"x")
        if self._setup.slots is None and not self._idle:
            self._open_ahead()

    def _give(self, connection: Connection, request: Exchange) -> None:
        connection.request, connection.framing = request, Framing()
        connection.last = clock()
        if connection.state == OPEN:
            self._send(connection, request)

    def _send(self, connection: Connection, request: Exchange) -> None:
        content, request.content = request.content, b""
        request.again = content if connection.is_used else b""
        connection.is_used = True
        connection.send(content)
        if connection.out:
            self._poller.modify(connection.socket.fileno(), READ | WRITE)

    def _idle_one(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.socket.fileno() < 0 or connection.request is not None:
                continue
            if connection.state == OPEN and (clock() - connection.last > _LONGEST_IDLE_S or connection.is_stale()):
                self._close(connection)
                continue
            return connection
        return None

    def _open(self) -> Connection:
        connection = Connection(self._server)
        self._connections[connection.socket.fileno()] = connection
        self._poller.register(connection.socket.fileno(), READ | WRITE)
        return connection

    def _open_ahead(self) -> None:
        """Opens a connection for the next request. On failure that request reports the reason."""
        with contextlib.suppress(OSError):
            self._idle.append(self._open())

    def _close(self, connection: Connection) -> None:
        handle = connection.socket.fileno()
        if handle >= 0:
            self._poller.unregister(handle)
            self._connections.pop(handle, None)
            connection.socket.close()
            if connection in self._idle:
                self._idle.remove(connection)

    # Reading

    def _handle(self, handle: int, flags: int) -> None:
        connection = self._connections.get(handle)
        if connection is None:
            self._serve_control(flags)
            return
        try:
            if flags & WRITE or connection.state == CONNECTING:
                self._write(connection)
            if flags & ~WRITE and connection.state != CONNECTING:
                self._read(connection)
        except BlockingIOError:
            pass
        except ProtocolError as failure:
            self._failed(connection, f"RemoteProtocolError: {failure}")
        except OSError as failure:
            kind = "ReadError" if connection.state == OPEN else "ConnectError"
            self._failed(connection, f"{kind}: {failure}")

    def _write(self, connection: Connection) -> None:
        if connection.state == CONNECTING:
            connection.connected()
            connection.last = clock()
        if connection.out:
            connection.flush()
        if connection.state == OPEN and connection.request is not None and connection.request.content:
            self._send(connection, connection.request)
        self._poller.modify(connection.socket.fileno(), READ | WRITE if connection.out else READ)

    def _read(self, connection: Connection) -> None:
        data, stamp, is_end = connection.read()
        arrival = self._arrival(stamp)
        connection.last = arrival.at
        request = connection.request
        if request is None:
            if data or is_end:
                self._close(connection)
            return
        if request.content and connection.state == OPEN:  # TLS has just been agreed on
            self._send(connection, request)
        if is_end:
            connection.framing.at_end_of_stream()
        content = connection.framing.feed(data) if data else b""
        request.answer.status = connection.framing.status
        request.again = b""
        if content:
            self._unread.append((request, content, arrival, None))
            self._unread_bytes += len(content)
        if connection.framing.ended:
            connection.request = None
            if connection.framing.keeps and not connection.out:
                self._idle.append(connection)
            else:
                self._close(connection)
            self._end(request, None, arrival)

    def _arrival(self, stamp: float | None) -> Arrival:
        now = clock()
        at, is_exact = now, False
        self.own.reads += 1
        if stamp is not None:
            # The wall clock may be set during a run, so an impossible time is not used.
            noted = stamp - (time.time() - now)
            if self._polled - _CLOCKS_AGREE_S < noted < now + _CLOCKS_AGREE_S:
                at, is_exact = min(noted, now), True
                self.own.stamped += 1
        self.own.wait.add(now - (at if is_exact else self._seen))
        return Arrival(at, min(self._seen, at), is_exact)

    def _failed(self, connection: Connection, why: str) -> None:
        request, connection.request = connection.request, None
        self._close(connection)
        if request is not None and request.again and connection.framing.is_empty:
            # Sent again, because the server silently closed the kept connection as it was sent. Its time continues.
            request.content, request.again = request.again, b""
            try:
                self._give(self._open(), request)
            except OSError as failure:
                self._end(request, f"ConnectError: {failure}")
        elif request is not None:
            request.answer.status = 200
            self._end(request, why)

    def _end(self, request: Exchange, why: str | None, arrival: Arrival | None = None) -> None:
        now = clock()
        arrival = arrival or Arrival(now, now, True)
        self._flying -= 1
        if self._setup.slots is not None:
            self._freed.append(arrival.at)
        self._unread.append((request, None, arrival, why))
        if self._begin is not None:
            self._fill()

    # Parsing

    def _look(self) -> None:
        request, content, arrival, why = self._unread.popleft()
        if content is None:
            self._outbox += packed(request.answer.end(arrival, why))
            return
        self._unread_bytes -= len(content)
        if not request.is_unreadable and not request.answer.take(content, arrival):
            request.is_unreadable = True
            for connection in [each for each in self._connections.values() if each.request is request]:
                self._failed(connection, request.answer.sample.error or "")

    def _serve_control(self, flags: int) -> None:
        if flags & WRITE:
            self._flush_outbox()
        if flags & ~WRITE:
            data = self._talk.recv(1 << 20)
            if not data:
                os._exit(0)  # the parent has ended
            self.receive(deque(self._unpacker.feed(data)))

    def _flush_outbox(self) -> None:
        with contextlib.suppress(BlockingIOError):
            del self._outbox[: self._talk.send(self._outbox)]
        self._poller.modify(self._talk.fileno(), READ | WRITE if self._outbox else READ)
