"""Identifies a process beyond its number: numbers are reused, after a while and after every restart."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

_DEAD_STATES = ("Z", "X")


class Life(Enum):
    """The state of a process as seen from here."""

    ALIVE = "alive"
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """On another machine or in another container: its number means nothing here."""


@dataclass(frozen=True)
class ProcessName:
    """A permanent identity of a process: its number, its start, and the scope of such numbers.

    ``started`` counts clock ticks since the machine's start (Linux), else it is the time in seconds. ``boot``
    identifies the machine's start, ``namespace`` the container's process table; both may be empty."""

    pid: int
    started: str
    boot: str
    namespace: str
    host: str

    def life(self) -> Life:
        """Returns whether this very process lives, and not a later one with the same number."""
        if self.host != socket.gethostname():
            return Life.ELSEWHERE
        if self.boot != _boot():
            return Life.GONE
        if self.namespace != _namespace():
            return Life.ELSEWHERE
        return Life.ALIVE if _started(self.pid) == self.started else Life.GONE

    def send(self, number: signal.Signals) -> bool:
        """Sends a signal to this process and to no other. Returns False if it is gone. Raises PermissionError."""
        import psutil

        try:
            # The live process found below is this one: psutil does not signal a later one with the same number.
            process = psutil.Process(self.pid)
            if self.life() is not Life.ALIVE:
                return False
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied as failure:
            raise PermissionError(str(failure)) from failure
        return True


def name_of(pid: int) -> ProcessName | None:
    """Returns the identity of the process with this number, or None without one."""
    started = _started(pid)
    return None if started is None else ProcessName(pid, started, _boot(), _namespace(), socket.gethostname())


def tree_of(root: int) -> set[int]:
    """Returns ``root`` and all its descendants."""
    import psutil

    found = {root}
    with contextlib.suppress(psutil.Error):
        found.update(child.pid for child in psutil.Process(root).children(recursive=True))
    return found


def writers_of(pipes: Collection[int]) -> list[int]:
    """Returns every other process that holds the writing end of one of the pipes, given by inode (Linux; elsewhere
    none)."""
    import psutil

    names = {f"pipe:[{inode}]" for inode in pipes}
    others = (pid for pid in psutil.pids() if pid != os.getpid())
    return [pid for pid in others if any(_writes(pid, number) for number in _descriptors(pid, names))]


def _descriptors(pid: int, names: Collection[str]) -> Iterator[str]:
    """Yields the descriptors that lead to one of the names, as far as this user may see them."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(f"{folder}/{number}") in names:
                    yield number


def _writes(pid: int, descriptor: str) -> bool:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as file:
        flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
        return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _started(pid: int) -> str | None:
    """Returns the start of the process with this number, or None if there is none or it is a zombie.

    psutil's time moves with the system's clock; the ticks do not."""
    if not os.path.isdir("/proc/self"):
        return _started_elsewhere(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in brackets may contain brackets and spaces.
            fields = file.read().rpartition(b")")[2].decode("ascii", "replace").split()
    except OSError:
        return None
    return None if not fields or fields[0] in _DEAD_STATES else fields[19]


def _started_elsewhere(pid: int) -> str | None:
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    return None


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
