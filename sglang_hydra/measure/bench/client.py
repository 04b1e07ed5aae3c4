"""Puts a load on a server: streaming requests, with a fixed number in flight (closed loop) or by arrival times.

Separate processes send and read (``load_process``); this process makes the prompts, passes them on in advance, and
collects the results. Nothing that it does delays a measurement."""

from __future__ import annotations

import contextlib
import math
import os
import random
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from sglang_hydra.measure.bench.connections import request_head, with_body
from sglang_hydra.measure.bench.load import Load
from sglang_hydra.measure.bench.measures import Sample
from sglang_hydra.measure.bench.messages import Begin, Order, Orders, Own, Setup, Unpacker, packed
from sglang_hydra.measure.bench.prompts import Prompt, TextMaker, make_prompts, point_seed
from sglang_hydra.measure.bench.server import Endpoint, authorities
from sglang_hydra.measure.bench.trace import read_trace
from sglang_hydra.measure.bench.wires import Completions, Generate, Target
from sglang_hydra.run.launch.head import is_own_address
from sglang_hydra.run.launch.listening import answering, listening
from sglang_hydra.run.launch.processes import tree_of
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict

STREAMS_PER_PROCESS = 128
"""One process reads some 40,000 events per second; more streams than this use more processes if there are cores."""

_REQUESTS_PER_S = 50
_FEW = 4
_AHEAD_S = 2.0
_BEGIN_IN_S = 0.005
_PACKAGES = Path(__file__).resolve().parents[3]
_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from sglang_hydra.measure.bench.load_process import main; "
_PROGRAM += "main(int(sys.argv[1]), int(sys.argv[2]))"


@dataclass(frozen=True)
class Run:
    """The result of a load: the requests, and the share of one core that the busiest client process used.

    ``window`` is the begin and end of the load, on ``time.monotonic``. ``own`` holds the client's own delays:
    ``lag_ms`` of its timers, ``send_delay_ms`` of its sending, ``wait_ms`` of bytes before they were read, each as
    ``measures.spread``."""

    samples: Sequence[Sample]
    client_cpu: float
    window: tuple[float, float]
    own: JsonDict


def run_load(
    target: Target,
    load: Load,
    prompts: Callable[[int], Sequence[Prompt]],
    seed: int,
    fewest: int | None = None,
    processes: LoadProcesses | None = None,
) -> Run:
    """Sends the load and waits for every answer. ``prompts(n)`` returns the next n requests.

    Sends at least ``fewest`` requests (None: ``load.smallest_count``); without ``num_prompts`` continues until
    ``min_duration``. A failed request becomes a sample with its error, and raises nothing. The caller owns
    ``processes``; without them, this starts and ends its own. Raises MachineError if one of them ends."""
    with ExitStack() as ours:
        kept = processes or ours.enter_context(LoadProcesses())
        fewest = load.smallest_count if fewest is None else fewest
        running = kept.running(_count_processes(load))
        try:
            return _Driver(target, load, _Supply(target, load, prompts, fewest, seed), running).run()
        except BaseException:
            kept.close()  # in the middle of a run they are of no use
            raise


class LoadProcesses(contextlib.AbstractContextManager["LoadProcesses"]):
    """The processes that send and read. They live across runs: a start takes as long as a short request."""

    def __init__(self) -> None:
        self._running: list[_Process] = []

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def running(self, count: int) -> list[_Process]:
        while len(self._running) < count:
            self._running.append(_Process())
        return self._running[:count]

    def close(self) -> None:
        for process in self._running:
            process.close()
        self._running.clear()


class _Process:
    """One load process, and its two channels."""

    def __init__(self) -> None:
        # A file, because an unread pipe would fill up and block the process.
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self.talk, theirs = socket.socketpair()
        self.taken, taken = os.pipe()
        os.set_blocking(self.taken, False)
        handles = (theirs.fileno(), taken)
        # Only the standard library and this package: no code of a user's environment runs there.
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_PACKAGES), *map(str, handles)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors, pass_fds=handles
        )
        self.pid = self._process.pid
        theirs.close()
        os.close(taken)
        self.unpacker = Unpacker()

    def send(self, message: object) -> None:
        try:
            self.talk.sendall(packed(message))
        except OSError:
            self.fail()

    def messages(self) -> Iterator[Any]:
        """Yields the received messages. Raises MachineError when the process has ended."""
        try:
            data = self.talk.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.fail()
        yield from self.unpacker.feed(data)

    def count_taken(self) -> int:
        try:
            return len(os.read(self.taken, 1 << 16))
        except BlockingIOError:
            return 0

    def fail(self) -> None:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "without a word")
        message = f"a process of the load client ended (exit {code}): {last[:500]}"
        raise MachineError(Finding("error", "BEN016", message, hint="is this machine out of memory?"))

    def close(self) -> None:
        if self.talk.fileno() >= 0:
            self.talk.close()
            os.close(self.taken)
            self._process.kill()
            self._process.wait()
            self._errors.close()


class _Supply:
    """The requests of a run, ready to send: the required number, then more until the time is over."""

    def __init__(
        self, target: Target, load: Load, prompts: Callable[[int], Sequence[Prompt]], fewest: int, seed: int
    ) -> None:
        self._head = request_head(target.url, target.wire.path, target.headers())
        self._target, self._load, self._prompts = target, load, prompts
        self._draw, self._due = random.Random(seed), 0.0
        self._owed = fewest
        self._times = _times_of(load)
        self.lasts_s = 0.0 if load.num_prompts is not None or self._times else load.min_duration
        self.ready: deque[Order] = deque()
        self.make(fewest)

    def make(self, count: int = _FEW) -> None:
        """Makes ``count`` more requests after the previous ones. ``due`` counts from the beginning of the run."""
        for prompt in self._prompts(count):
            body = self._target.wire.body(prompt, self._target.model, self._load.stream)
            rate = self._load.request_rate
            due = None if rate is None else self._times.popleft() if self._times else self._due
            self.ready.append(Order(with_body(self._head, body), prompt.output_len, due, self._owed > 0))
            self._due += self._draw.expovariate(rate) if rate is not None else 0.0
            self._owed -= 1

    @property
    def owes(self) -> bool:
        return bool(self.ready) and self.ready[0].owed


def _times_of(load: Load) -> deque[float]:
    """Returns the due times of a trace's requests in seconds from the beginning, scaled to the requested rate."""
    if load.trace is None:
        return deque()
    trace = read_trace(load.trace, load.num_prompts)
    return deque(each.at * trace.rate / (load.request_rate or trace.rate) for each in trace.arrivals)


class _Driver:
    """Passes the requests to the processes, a little in advance, and collects the samples."""

    def __init__(self, target: Target, load: Load, supply: _Supply, processes: Sequence[_Process]) -> None:
        self._load, self._supply, self._processes = load, supply, processes
        self._ahead = [0] * len(processes)
        self._next = 0
        each, rest = divmod(load.concurrency or 0, len(processes))
        self._slots = [each + (number < rest) if load.concurrency else None for number in range(len(processes))]
        rate = (load.request_rate or 0.0) / len(processes)
        self._most = [max(slots or 0, math.ceil(rate * _AHEAD_S)) + _FEW for slots in self._slots]
        if load.trace is not None:  # many may arrive at once
            self._most = [len(supply.ready)] * len(processes)
        self._samples: list[Sample] = []
        self._ended: list[Own] = []
        self._begin = self._until = math.inf
        self._waits, trusted = CoreWaits(target.url), authorities(target.url)
        for process, slots in zip(processes, self._slots, strict=True):
            opened = 1 if load.request_rate is not None else min(slots or 1, len(supply.ready))
            process.send(Setup(target.url, trusted, target.wire, load.stream, load.timeout, slots, opened))

    def run(self) -> Run:
        for process in self._processes:
            while "ready" not in process.messages():
                pass
        self._begin = time.monotonic() + _BEGIN_IN_S
        self._until = self._begin + self._supply.lasts_s
        self._hand_out()
        for process in self._processes:
            process.send(Begin(self._begin, self._until))
        with selectors.DefaultSelector() as selector:
            for number, process in enumerate(self._processes):
                selector.register(process.talk, selectors.EVENT_READ, number)
                selector.register(process.taken, selectors.EVENT_READ, number)
            while len(self._ended) < len(self._processes):
                self._waits.look()
                for key, _ in selector.select(PERIOD_S):
                    self._receive(key.data, key.fileobj)
                self._hand_out()
        return self._result(time.monotonic())

    def _receive(self, number: int, source: object) -> None:
        process = self._processes[number]
        if source == process.taken:
            self._ahead[number] -= process.count_taken()
            return
        for message in process.messages():
            if isinstance(message, Own):
                self._ended.append(message)
            elif isinstance(message, Sample):
                self._samples.append(message)

    def _hand_out(self) -> None:
        """Keeps every process supplied, and marks the last orders."""
        if self._next < 0:
            return
        supply, lasts = self._supply, time.monotonic() < self._until
        if self._supply.lasts_s and lasts and len(supply.ready) + sum(self._ahead) <= self._wanted():
            supply.make()
        given: list[list[Order]] = [[] for _ in self._processes]
        while supply.ready and (supply.owes or lasts) and self._has_room():
            order = supply.ready.popleft()
            due = None if order.due is None else self._begin + order.due
            given[self._next].append(order._replace(due=due))
            self._ahead[self._next] += 1
            self._next = (self._next + 1) % len(self._processes)
        are_last = not supply.owes and not (supply.lasts_s and lasts)
        for process, orders in zip(self._processes, given, strict=True):
            if orders or are_last:
                process.send(Orders(tuple(orders), are_last))
        if are_last:
            self._next = -1

    def _wanted(self) -> int:
        """Returns the number of requests to keep ready beyond those already passed on."""
        rate = self._load.request_rate
        return math.ceil(rate * _AHEAD_S) if rate is not None else sum(slots or 0 for slots in self._slots)

    def _has_room(self) -> bool:
        """Returns whether a process lacks requests; ``_next`` becomes that process."""
        count = len(self._processes)
        turns = ((self._next + step) % count for step in range(count))
        found = next((number for number in turns if self._ahead[number] < self._most[number]), None)
        self._next = self._next if found is None else found
        return found is not None

    def _result(self, ended: float) -> Run:
        total = Own()
        for own in self._ended:
            for whole, part in ((total.lag, own.lag), (total.send, own.send), (total.wait, own.wait)):
                whole.merge(part)
            total.reads, total.stamped = total.reads + own.reads, total.stamped + own.stamped
        record = {
            "processes": len(self._processes),
            "kernel_times": total.stamped / total.reads if total.reads else None,
            "lag_ms": total.lag.spread_ms(),
            "send_delay_ms": total.send.spread_ms(),
            "wait_ms": total.wait.spread_ms(),
        }
        self._waits.look()
        for sample in self._samples:
            self._waits.put_into(sample)
        self._samples.sort(key=lambda sample: sample.asked_at)
        busiest = max(own.cpu for own in self._ended)
        return Run(self._samples, busiest, window=(self._begin, ended), own=record)


def _count_processes(load: Load) -> int:
    """Returns the number of processes for the streams, at most half of the cores. An open loop with a bound uses one,
    because the bound applies to all of its requests."""
    if load.request_rate is not None:
        wanted = 1 if load.concurrency else math.ceil(load.request_rate / _REQUESTS_PER_S)
    else:
        wanted = math.ceil((load.concurrency or 1) / STREAMS_PER_PROCESS)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(wanted, cores // 2))


class Builtin:
    """The built-in client. It keeps the text maker and the load processes between points."""

    name = "builtin"

    def __init__(self, server: Endpoint) -> None:
        wire = Generate() if server.engine == "sglang" else Completions()
        self._target = Target(server.url, server.model, wire, server.api_key)
        self._server = server
        self._processes = LoadProcesses()
        self._texts = None if wire.takes_ids else TextMaker(server.python, server.model_path)

    def run(self, load: Load, seed: int, fewest: int | None = None) -> Run:
        """Sends the load; at least ``fewest`` requests instead of ``load.smallest_count``."""
        return run_load(self._target, load, self._source(load, seed), seed, fewest, self._processes)

    def warm_up(self, load: Load, seed: int) -> None:
        few = replace(load, num_prompts=load.warmup, concurrency=load.warmup, request_rate=None, trace=None)
        run_load(self._target, few, self._source(few, seed), seed, processes=self._processes)

    def close(self) -> None:
        self._processes.close()
        if self._texts is not None:
            self._texts.close()

    def _source(self, load: Load, seed: int) -> Callable[[int], Sequence[Prompt]]:
        """Returns a function that makes the next prompts: each call continues after the previous one."""
        batch = given = 0

        def more(count: int) -> Sequence[Prompt]:
            nonlocal batch, given
            batch += 1
            part = seed if batch == 1 else point_seed(seed, "batch", batch)
            prompts = make_prompts(load, count, part, self._server.vocab_size, shared=seed, start=given)
            given += count
            if self._texts is None or load.dataset == "file":
                return prompts
            return self._texts.texts(prompts, part)

        return more


PERIOD_S = 0.01


class CoreWaits:
    """Measures how long the processes that answer at ``url``, and their children, wait for a core; nothing on another
    machine or without system support.

    Client and server share a small machine: the client takes the server's cores, and no clock of the client shows it.
    Counts each process's main thread, which runs the loop of SGLang's HTTP server, scheduler and detokenizer."""

    def __init__(self, url: str) -> None:
        self._files = [*_schedstats(url)]
        self._times: list[float] = []
        self._waits: list[Sequence[float]] = []

    def __del__(self) -> None:
        for handle in self._files:
            os.close(handle)

    def look(self) -> None:
        """Records the waits so far, at most once per ``PERIOD_S``."""
        now = time.monotonic()
        if self._files and (not self._times or now - self._times[-1] >= PERIOD_S):
            last = self._waits[-1] if self._waits else [0.0] * len(self._files)
            self._waits.append([_waited(handle, before) for handle, before in zip(self._files, last, strict=True)])
            self._times.append(now)

    def longest(self, begin: float, end: float) -> float:
        """Returns the longest wait in seconds of one process between two times (``time.monotonic``) of the run."""
        before = max(0, bisect_right(self._times, begin) - 1)
        after = min(len(self._times) - 1, bisect_left(self._times, end))
        return max(late - early for early, late in zip(self._waits[before], self._waits[after], strict=True))

    def put_into(self, sample: Sample) -> None:
        if self._files and sample.first is not None:
            sample.server_waits = self.longest(sample.sent, sample.first), self.longest(sample.first, sample.end)


def _schedstats(url: str) -> Iterator[int]:
    """Yields opened files with CPU time and wait for a core (both in ns) and time slices of a main thread (proc(5),
    schedstat)."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        if not os.path.exists("/proc/self/schedstat") or not is_own_address(host):
            return
    except (OSError, UnicodeError):  # a name that leads nowhere
        return
    owners = {each.pid for each in answering(host, listening(port) or ()) if each.pid is not None}
    for pid in set().union(*map(tree_of, owners)):
        with contextlib.suppress(OSError):
            yield os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)


def _waited(handle: int, before: float) -> float:
    """Returns the seconds waited; ``before`` for an ended process."""
    try:
        return int(os.pread(handle, 100, 0).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return before
