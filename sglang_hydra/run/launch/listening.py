"""Finds who listens on a port: the started server, another process, or an invisible one."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

from sglang_hydra.run.launch.processes import tree_of

OURS, FOREIGN, UNSEEN = "ours", "foreign", "unseen"
_JOB = "SLURM_JOB_ID"
# Programs that listen on this machine for a server in a container's network: of Docker, Podman, rootless ones.
_FORWARDERS = ("(docker-proxy)", "(rootlessport)", "(slirp4netns)", "(pasta)")
# Processes start and end during a look, so a verdict other than "ours" is checked again.
_LOOKS, _MOMENT_S = 4, 0.1

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Socket(NamedTuple):
    """A listening socket: its address, and the process that holds it, or None if this user may not see it."""

    address: Address
    pid: int | None


class Owner(NamedTuple):
    """The owner of a port: ``ours``, ``foreign`` or ``unseen``. ``who`` names a foreign process, or says why the owner
    is unseen."""

    whose: str
    who: str = ""


def port_owner(host: str, port: int, root: int | None, job: str = "") -> Owner:
    """Returns whether only the process ``root`` and its descendants answer on ``host``:``port``.

    Processes of the Slurm job ``job`` count as ours too, although they are children of Slurm. Takes 0.3 seconds at
    most. A foreign process may share the port with ours (SO_REUSEPORT): that is ``foreign``."""
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
    """Returns every socket that listens on the port in this network namespace; None if the system lists none."""
    import psutil

    try:
        found = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    open_here = [(each.laddr, each.pid) for each in found if each.status == psutil.CONN_LISTEN]
    return [Socket(_address(bound.ip), pid) for bound, pid in open_here if bound and bound.port == port]


def named(pid: int) -> str:
    """Returns ``process 123 (nginx)``. Omits the command line, because it may contain a key."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return f"process {pid} ({psutil.Process(pid).name()})"
    return f"process {pid}"


def _owner(host: str, port: int, sockets: list[Socket] | None, root: int, job: str) -> Owner:
    if sockets is None:
        return Owner(UNSEEN, "this system does not say which process listens on a port")
    found = answering(host, sockets)
    if not found:
        return Owner(UNSEEN, f"nobody listens on port {port} in this network namespace")
    tree = tree_of(root)
    unknown = False
    for each in found:
        if each.pid is None or (each.pid not in tree and _in_container(each.pid)):
            unknown = True
        elif each.pid not in tree and not _is_of_job(each.pid, job):
            return Owner(FOREIGN, named(each.pid))
    if unknown:
        return Owner(UNSEEN, f"the process that listens on port {port} is another user's, or in a container")
    return Owner(OURS)


def answering(host: str, sockets: Sequence[Socket]) -> list[Socket]:
    """Returns the sockets that get the connections to ``host``: those of the exact address, else those on every
    address. No other server of the same family runs beside a server on every address."""
    found: list[Socket] = []
    try:
        infos = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return found
    everywhere = [each for each in sockets if each.address.is_unspecified]
    for text in dict.fromkeys(str(info[4][0]).partition("%")[0] for info in infos):
        address = ipaddress.ip_address(text)
        exact = [each for each in sockets if each.address == address and not address.is_unspecified]
        among = sockets if address.is_unspecified else everywhere
        same = [each for each in among if each.address.version == address.version]
        # A socket on :: accepts IPv4 too, unless an option forbids it.
        found += exact or same or (everywhere if address.version == 4 or address.is_unspecified else [])
    return list(dict.fromkeys(found))


def _address(text: str) -> Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _in_container(pid: int) -> bool:
    """Returns whether a process has its own process table, or forwards connections for one that has."""
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid"):
            return True
    return named(pid).endswith(_FORWARDERS)


def _is_of_job(pid: int, job: str) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(job) and psutil.Process(pid).environ().get(_JOB) == job
    return False
