"""Program that starts one server and ensures that none of its processes outlives the process that asked for it.

    python guard.py WATCH_FD STOP_SECONDS PROGRAM [ARGUMENT ...]

It is the parent of the server and imports only the standard library, so it still acts when we are killed with -9 or the
server hangs. It sends SIGTERM to the server when it gets a stop signal itself, when WATCH_FD closes (we hold the other
end, so it closes however we end) or when its parent is gone. After STOP_SECONDS, or on a second request, it kills the
server. After the end of the server it kills every process that the server left, including grandchildren in their own
sessions, and exits with the server's exit code (128 + N for signal N).

It consists of two processes, and each completes the work if the other is killed. The outer one is our child: it passes
requests on, and collects the processes that the inner one leaves. The inner one starts the server. Both hold WATCH_FD,
so that we see when both have ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KEY_FD = "SGLANG_HYDRA_KEY_FD"
_TICK_S = 0.5
# Beyond the server's own time, for the inner process to collect dead processes.
_INNER_EXTRA_S = 6.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _run_server(argv: list[str], guard: int, watch: int) -> None:
    """Becomes the server in the forked child. The kernel kills it if the guard is killed."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(1)
    os.close(watch)
    # Python ignores the last two signals, and the next program would inherit that.
    for number in (*_STOP_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as failure:
        os.write(2, f"cannot run {argv[0]}: {failure.strerror}\n".encode())
        os._exit(127)


def _parents() -> dict[int, int]:
    """Maps every process of the machine to its parent."""
    if not os.path.isdir("/proc/self"):
        with os.popen("ps -A -o pid=,ppid=") as table:
            return {int(pid): int(parent) for pid, parent in (line.split() for line in table)}
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name in brackets may contain brackets and spaces.
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
    return parents


def _descendants() -> set[int]:
    parents = _parents()
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found - {os.getpid()}
        found |= more


def _reap(server: int) -> int | None:
    """Collects dead processes. Returns the server's wait status if it is among them."""
    status = None
    while True:
        try:
            pid, how = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == server:
            status = how


def _kill_everything() -> None:
    """Kills descendants until none is left (5 seconds at most): a process may start another one meanwhile."""
    deadline = time.monotonic() + 5
    while (left := _descendants()) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        _reap(-1)
        time.sleep(0.01)


def _watch_over(
    child: int,
    watch: int,
    signals: int,
    stop_s: float,
    ask: Callable[[int], None],
    counted: tuple[int, ...] = (),
    close_counts: int = 1,
) -> int:
    """Waits for the child's end, whatever causes it, and returns its wait status.

    ``signals`` yields a byte for each signal; those in ``counted`` request the end. Each byte of ``watch`` is a request
    too, and its close counts as ``close_counts`` requests. Calls ``ask`` with the number of each request. Kills the
    child ``stop_s`` seconds after the first one."""
    parent, deadline, number = os.getppid(), None, 0
    selector = selectors.DefaultSelector()
    selector.register(signals, selectors.EVENT_READ)
    selector.register(watch, selectors.EVENT_READ)
    watched = True
    while True:
        status = _reap(child)
        if status is not None:
            return status
        timeout = _TICK_S if deadline is None else min(_TICK_S, max(0.0, deadline - time.monotonic()))
        readable = {key.fd for key, _ in selector.select(timeout)}
        asked = 0
        if signals in readable:
            asked = sum(signal_number in counted for signal_number in os.read(signals, 4096))
        if watched:
            came = os.read(watch, 64) if watch in readable else None
            # The pipe does not close if a forked process still holds its other end.
            watched = came != b"" and os.getppid() == parent
            asked += len(came or b"") + (0 if watched else close_counts)
            if not watched:
                selector.unregister(watch)
        for _ in range(asked):
            number += 1
            ask(number)
        if asked and deadline is None:
            deadline = time.monotonic() + stop_s
        if deadline is not None and time.monotonic() >= deadline:
            deadline = time.monotonic() + _TICK_S
            os.kill(child, signal.SIGKILL)


def _signals_as_bytes() -> int:
    """Turns each signal into a byte in a pipe from now on. Returns the reading end."""
    signals, signals_end = os.pipe()
    os.set_blocking(signals_end, False)
    signal.set_wakeup_fd(signals_end, warn_on_full_buffer=False)
    for number in (*_STOP_SIGNALS, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    # Orphaned processes become our children, also those in their own sessions.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return signals


def _inner(argv: list[str], orders: int, watch: int, stop_s: float) -> int:
    """Starts the server, watches over it, and returns its wait status. Only the outer process requests its end, because
    a signal to a whole process group must not count twice. The close of ``orders`` means that the outer process was
    killed: this process then kills the server."""
    signals = _signals_as_bytes()
    guard = os.getpid()
    server = os.fork()
    if server == 0:
        _run_server(argv, guard, watch)
    _close_key()

    def ask(number: int) -> None:
        os.kill(server, signal.SIGTERM if number == 1 else signal.SIGKILL)

    return _watch_over(server, orders, signals, stop_s, ask, close_counts=2)


def _close_key() -> None:
    key = os.environ.get(_KEY_FD)
    if key is not None:
        os.close(int(key))


def main(arguments: list[str]) -> int:
    watch, stop_s, argv = int(arguments[0]), float(arguments[1]), arguments[2:]
    os.set_inheritable(watch, False)
    orders, order = os.pipe()
    signals = _signals_as_bytes()
    inner = os.fork()
    if inner == 0:
        os.close(order)
        status = _inner(argv, orders, watch, stop_s)
    else:
        os.close(orders)
        _close_key()

        def ask(number: int) -> None:
            with contextlib.suppress(OSError):
                os.write(order, b".")

        status = _watch_over(inner, watch, signals, stop_s + _INNER_EXTRA_S, ask, _STOP_SIGNALS)
        if os.WIFSIGNALED(status):
            os.write(2, f"the guard of the server was ended by signal {os.WTERMSIG(status)}\n".encode())
    _kill_everything()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
