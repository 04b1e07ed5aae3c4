"""Finds who listens on a port: the server that was started, another process, or one that cannot be seen (Linux
only)."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from sglang_hydra.run.launch.processes import all_pids, open_files, tree_of

OURS, FOREIGN, UNSEEN = "ours", "foreign", "unseen"
_LISTEN = "0A"
_JOB = "SLURM_JOB_ID"
# Listen on this machine for a server in a container's network: of Docker, Podman, rootless ones.
_FORWARDERS = ("(docker-proxy)", "(rootlessport)", "(slirp4netns)", "(pasta)")
# Processes come and go while they are looked at: a verdict that is not "ours" is looked at again.
_LOOKS, _MOMENT_S = 4, 0.1

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Socket(NamedTuple):
    """A socket that listens: where, and the number by which its owner is found."""

    address: Address
    inode: str


class Owner(NamedTuple):
    """The owner of a port: ``ours``, ``foreign`` or ``unseen``. ``who`` names a foreign process, or says why the owner
    is not seen."""

    whose: str
    who: str = ""


def port_owner(host: str, port: int, root: int | None, job: str = "") -> Owner:
    """Whether the process ``root`` or one below it answers on ``host``:``port``, and nobody else beside it.

    ``job`` is a Slurm job whose processes count as ours, too: they are children of Slurm's. Takes 0.3 seconds at
    most. A foreign process may share the port with ours (SO_REUSEPORT): that is ``foreign``.
    """
    if root is None:
        return Owner(UNSEEN, "the server has ended")
    for _ in range(_LOOKS - 1):
        sockets = listening(port)
        found = _owner(host, port, sockets, root, job)
        if found.whose == OURS or not sockets:
            return found
        time.sleep(_MOMENT_S)
    return _owner(host, port, listening(port), root, job)


def listening(port: int) -> list[Socket] | None:
    """Every socket that listens on the port, in this network namespace; None where the system does not say."""
    found: list[Socket] = []
    readable = False
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        readable = True
        for row in rows:
            address, _, number = row[1].rpartition(":")
            if row[3] == _LISTEN and int(number, 16) == port:
                found.append(Socket(_address(address), row[9]))
    return found if readable else None


def process_with(inodes: Collection[str], pids: Collection[int] | None = None) -> int | None:
    """A process that holds one of the sockets, as far as this user may see it; of ``pids`` only, if they are given."""
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for pid in pids if pids is not None else all_pids():
        if any(name in sockets for _, name in open_files(pid)):
            return pid
    return None


def named(pid: int) -> str:
    """``process 123 (nginx)``. Its command line is not shown: it may hold a key."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return f"process {pid} ({file.read().strip()})"
    return f"process {pid}"


def _owner(host: str, port: int, sockets: list[Socket] | None, root: int, job: str) -> Owner:
    if sockets is None:
        return Owner(UNSEEN, "this system does not say which process listens on a port")
    answering = _answering(host, sockets)
    if not answering:
        return Owner(UNSEEN, f"nobody listens on port {port} in this network namespace")
    tree = tree_of(root)
    unknown = False
    for each in answering:
        if process_with([each.inode], tree) is not None:
            continue
        pid = process_with([each.inode])
        if pid is None or _in_container(pid):
            unknown = True
        elif not _is_of_job(pid, job):
            return Owner(FOREIGN, named(pid))
    if unknown:
        return Owner(UNSEEN, f"the process that listens on port {port} is another user's, or in a container")
    return Owner(OURS)


def _answering(host: str, sockets: list[Socket]) -> list[Socket]:
    """Those of the sockets that get the connections to ``host``: of an address the exact ones, else those of every
    address. A server on every address has no other one of its family beside it."""
    found: list[Socket] = []
    for address in _addresses(host):
        if address.is_unspecified:
            found += [each for each in sockets if each.address.version == address.version] or [
                each for each in sockets if each.address.is_unspecified
            ]
            continue
        exact = [each for each in sockets if each.address == address]
        same = [each for each in sockets if each.address.is_unspecified and each.address.version == address.version]
        # A socket on :: takes IPv4, too, unless an option forbids it.
        dual = [each for each in sockets if each.address.is_unspecified] if address.version == 4 else []
        found += exact or same or dual
    return list(dict.fromkeys(found))


def _addresses(host: str) -> Iterator[Address]:
    with contextlib.suppress(OSError, UnicodeError):
        infos = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)
        for address in dict.fromkeys(str(info[4][0]).partition("%")[0] for info in infos):
            yield ipaddress.ip_address(address)


def _address(text: str) -> Address:
    """An address as the kernel prints it: words of 32 bits in the machine's own order."""
    raw = bytes.fromhex(text)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _in_container(pid: int) -> bool:
    """Whether a process has a process table of its own, or passes on what comes for one that has."""
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid"):
            return True
    return named(pid).endswith(_FORWARDERS)


def _is_of_job(pid: int, job: str) -> bool:
    if not job:
        return False
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return f"{_JOB}={job}".encode() in file.read().split(b"\0")
    return False
