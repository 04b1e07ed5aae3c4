"""Checks a server's port: whether one can listen there, its address for clients, and its health page."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time

from sglang_hydra.run.launch.listening import listening, named
from sglang_hydra.run.launch.processes import Life
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import program

_LAST_PORT = 65535
_NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_LOOKED_AT = 50
_ATTEMPTS, _MOMENT_S = 5, 0.05
HEALTHY = 200


def port_obstacle(host: str, port: int, field: str = "port") -> Finding | None:
    """Returns why nobody can listen on ``host``:``port`` now; None if one can. Keeps nothing open.

    ``field`` is the argument that sets the number: the one to change."""
    if not 0 <= port <= _LAST_PORT:
        return _cannot(host, port, f"ports go from 0 to {_LAST_PORT}", field, f"{field}=30000")
    try:
        _listen_once_free(host, port)
    except OSError as failure:
        return _finding(host, port, failure, field)
    except UnicodeError:
        return _cannot(host, port, "that is no host name", "host", "host=127.0.0.1 or host=0.0.0.0")
    return None


def _listen_once_free(host: str, port: int) -> None:
    """Listens once the port is free. Retries a port that nobody listens on: a starting program may hold a socket that
    it inherited from this one between fork and exec. Raises OSError for a port in use."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            _listen(host, port)
            return
        except OSError as failure:
            if not left or failure.errno != errno.EADDRINUSE or listening(port):
                raise
            time.sleep(_MOMENT_S)


def _listen(host: str, port: int) -> None:
    places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    failures = []
    # A name may resolve to several addresses; servers listen on each that this machine has.
    for family, kind, protocol, _, address in places:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # Servers set it too: a connection that was closed a moment ago does not block the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen(1)
        except OSError as failure:
            if failure.errno not in _NO_ADDRESS:
                raise
            failures.append(failure)
    if len(failures) == len(places):
        raise failures[0]


def client_host(host: str) -> str:
    """Returns the address by which a client on this machine reaches a server that listens on ``host``."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def health_of(host: str, port: int | None, path: str, timeout_s: float) -> int | None:
    """Returns the current HTTP status of the page, 200 for a ready server; None without an answer within ``timeout_s``
    seconds. Does not follow redirects: a healthy server sends none."""
    # Not urllib, because it obeys proxy settings.
    import http.client

    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _finding(host: str, port: int, failure: OSError, field: str) -> Finding:
    if failure.errno == errno.EADDRINUSE:
        owner = next((f" by {named(each.pid)}" for each in listening(port) or () if each.pid is not None), "")
        hint = f"{_elsewhere(host, port, field)}, or {_end_of(port)}"
        return Finding("error", "ENG006", f"port {port} is in use{owner}", (field,), hint)
    if failure.errno == errno.EACCES:
        return _cannot(host, port, "this user may not listen on it", field, f"{field}=30000, or any above 1023")
    return _cannot(host, port, failure.strerror or str(failure), "host", "host=127.0.0.1 or host=0.0.0.0")


def _end_of(port: int) -> str:
    """Returns how to stop the server on the port: by name if it is a live detached server of ours, the oldest one if
    several name this port, and never this process."""
    from sglang_hydra.run.launch.servers import records

    others = (record for record in records() if record.url.endswith(f":{port}") and record.process.pid != os.getpid())
    alive = [record for record in others if record.life is Life.ALIVE]
    oldest = min(alive, key=lambda record: record.started_at, default=None)
    return f"{program()} stop {oldest.name}" if oldest else "stop the other server"


def _elsewhere(host: str, port: int, field: str) -> str:
    """Returns the override for another port: the next free one."""
    for candidate in (*range(port + 1, min(port + 1 + _LOOKED_AT, _LAST_PORT + 1)), 30000):
        with contextlib.suppress(OSError):
            _listen(host, candidate)
            break
    return f"dist_init_addr=HOST:{candidate}" if field == "dist_init_addr" else f"{field}={candidate}"


def _cannot(host: str, port: int, why: str, field: str, hint: str) -> Finding:
    return Finding("error", "ENG007", f"no server can listen on {host}:{port}: {why}", (field,), hint)
