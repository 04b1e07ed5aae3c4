"""Which process a number means: a process id is used again, after a while and after every restart of the machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

_ASK_TIMEOUT_S = 10.0
_DEAD_STATES = ("Z", "X")


class Life(Enum):
    """The state of a process as far as it can be seen from here."""

    ALIVE = "alive"
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """On another machine, or in another container: its number means nothing here."""


@dataclass(frozen=True)
class ProcessName:
    """A process for good: its number, when it was started, and where such numbers mean the same.

    ``started`` counts clock ticks since the machine's start (Linux), else it is the time as ``ps`` prints it.
    ``boot`` is the machine's start, ``namespace`` the container's process table; both empty where there is none.
    """

    pid: int
    started: str
    boot: str
    namespace: str
    host: str

    def life(self) -> Life:
        """Whether this very process lives; one with the same number that was started later is another."""
        if self.host != socket.gethostname():
            return Life.ELSEWHERE
        if self.boot != _boot():
            return Life.GONE
        if self.namespace != _namespace():
            return Life.ELSEWHERE
        return Life.ALIVE if _started(self.pid) == self.started else Life.GONE

    def send(self, number: signal.Signals) -> bool:
        """Sends a signal to this process and to no other; False where it is gone. Raises PermissionError."""
        opened = getattr(os, "pidfd_open", None)
        if opened is None:
            if self.life() is not Life.ALIVE:
                return False
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
                return True
            return False
        try:
            handle = opened(self.pid)
        except OSError:
            return False
        try:
            # The handle stays with the process that it was opened for, so what is found now holds when we send.
            if self.life() is not Life.ALIVE:
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def name_of(pid: int) -> ProcessName | None:
    """The process that has this number now; None if none has."""
    started = _started(pid)
    return None if started is None else ProcessName(pid, started, _boot(), _namespace(), socket.gethostname())


def tree_of(root: int) -> set[int]:
    """``root`` and every process below it (Linux; elsewhere ``root`` alone)."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        fields = _stat(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    found, new = {root}, [root]
    while new:
        new = [pid for parent in new for pid in children.get(parent, ()) if pid not in found]
        found.update(new)
    return found


def all_pids() -> list[int]:
    """Every process of this machine or container (Linux; elsewhere none)."""
    if not os.path.isdir("/proc/self"):
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def open_files(pid: int) -> Iterator[tuple[str, str]]:
    """The descriptors of a process and what they lead to, as far as this user may see them."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            # A file may be closed meanwhile; with this process itself, the listing is one that is.
            with contextlib.suppress(FileNotFoundError):
                yield number, os.readlink(f"{folder}/{number}")


def writers_of(pipes: Collection[int]) -> list[int]:
    """Every other process that holds the writing end of one of the pipes, which are named by their inodes."""
    names = {f"pipe:[{inode}]" for inode in pipes}
    return [
        pid
        for pid in all_pids()
        if pid != os.getpid() and any(name in names and _writes(pid, number) for number, name in open_files(pid))
    ]


def _writes(pid: int, descriptor: str) -> bool:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as file:
        flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
        return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _stat(pid: int) -> list[str] | None:
    """What /proc says of a process behind its name, its state first and its parent second; None for none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in brackets may hold anything, brackets and spaces too.
            return file.read().rpartition(b")")[2].decode("ascii", "replace").split() or None
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When the process with this number was started; None for none, and for one that is dead and not collected."""
    if not os.path.isdir("/proc/self"):
        return _asked_ps(pid)
    fields = _stat(pid)
    return None if fields is None or fields[0] in _DEAD_STATES else fields[19]


def _asked_ps(pid: int) -> str | None:
    import subprocess

    try:
        asked = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    state, _, started = asked.stdout.strip().partition(" ")
    return started.strip() or None if not state.startswith(_DEAD_STATES) else None


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
