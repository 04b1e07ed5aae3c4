"""A server's port: whether one can listen there, where a client reaches it, and what its health page says."""

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
    """Returns why nobody can listen on ``host``:``port`` now; None if one can. Nothing stays open.

    ``field`` is the argument that the number comes from: the one to change.
    """
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
    """Listens once the port is free. One that nobody listens on may be held for a moment: by a socket that a program
    which is just being started inherited from this one, between its fork and its exec."""
    for attempt in range(_ATTEMPTS):
        try:
            _listen(host, port)
        except OSError as failure:
            last = attempt == _ATTEMPTS - 1
            if last or failure.errno != errno.EADDRINUSE or listening(port):
                raise
            time.sleep(_MOMENT_S)
        else:
            return


def _listen(host: str, port: int) -> None:
    places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    failures = []
    # A name may stand for several addresses, and servers listen on each of them that this machine has.
    for family, kind, protocol, _, address in places:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # As servers do: a connection that was closed a moment ago is no obstacle.
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
    """Returns where a client on this machine reaches a server that listens on ``host``."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def health_of(host: str, port: int | None, path: str, timeout_s: float) -> int | None:
    """Returns the status that the page answers now, 200 for a server that can serve; None without an answer within
    ``timeout_s`` seconds. A redirect is not followed: it is no healthy server's answer."""
    # Not urllib: it would obey proxy settings.
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
        owner = _listener(port)
        return Finding(
            level="error",
            id="ENG006",
            message=f"port {port} is in use" + (f" by {owner}" if owner else ""),
            fields=(field,),
            hint=f"{_elsewhere(host, port, field)}, or {_end_of(port)}",
        )
    if failure.errno == errno.EACCES:
        return _cannot(host, port, "this user may not listen on it", field, f"{field}=30000, or any above 1023")
    return _cannot(host, port, failure.strerror or str(failure), "host", "host=127.0.0.1 or host=0.0.0.0")


def _end_of(port: int) -> str:
    """Returns how the server on the port is stopped: by its name where it is a detached one of ours that lives, the
    first of those that want the port, and not the one that is being started here."""
    from sglang_hydra.run.launch.servers import records

    others = (record for record in records() if record.url.endswith(f":{port}") and record.process.pid != os.getpid())
    alive = [record for record in others if record.life is Life.ALIVE]
    named = min(alive, key=lambda record: record.started_at, default=None)
    return f"{program()} stop {named.name}" if named else "stop the other server"


def _elsewhere(host: str, port: int, field: str) -> str:
    """Returns what to type for another port: the next one that is free now."""
    for candidate in (*range(port + 1, min(port + 1 + _LOOKED_AT, _LAST_PORT + 1)), 30000):
        with contextlib.suppress(OSError):
            _listen(host, candidate)
            break
    return f"dist_init_addr=HOST:{candidate}" if field == "dist_init_addr" else f"{field}={candidate}"


def _cannot(host: str, port: int, why: str, field: str, hint: str) -> Finding:
    return Finding(
        level="error", id="ENG007", message=f"no server can listen on {host}:{port}: {why}", fields=(field,), hint=hint
    )


def _listener(port: int) -> str | None:
    """Returns the name and id of a process that listens on the port, where this user may see it."""
    pid = next((each.pid for each in listening(port) or () if each.pid is not None), None)
    return named(pid) if pid is not None else None
