"""Formats the server's address, and the address where its nodes meet."""

from __future__ import annotations

import ipaddress

from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject

# The ports of a single node begin at the HTTP port plus this number (SGLang 0.5.2).
ZMQ_TCP_PORT_DELTA = 233


def server_url(values: JsonObject) -> str:
    """Returns the server's URL under these arguments, with an IPv6 host in brackets."""
    return f"http://{host_and_port(values['host'], values['port'])}"


def host_and_port(host: str, port: int) -> str:
    """Formats ``HOST:PORT``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if _is_ipv6(host) else f"{host}:{port}"


def head_address(values: JsonObject) -> tuple[str, int]:
    """Returns host and port of the first node, with an IPv6 host in its brackets.

    Raises ConfigError for a dist_init_addr that is not HOST:PORT, and for several nodes without one."""
    address = values["dist_init_addr"]
    if values["nnodes"] == 1 and address is None:
        return "127.0.0.1", values["port"] + ZMQ_TCP_PORT_DELTA
    if not isinstance(address, str):
        raise _bad_address(f"dist_init_addr is {address!r}, and nnodes={values['nnodes']}", (2621, 2623))
    if address.startswith("["):
        host, port = _split_ipv6(address)
        lines = (2623, 2625)
    else:
        host, colon, port = address.partition(":")
        if not colon or ":" in port:
            raise _bad_address(f"dist_init_addr={address} is not HOST:PORT", (2626, 2631))
        lines = (2633, 2634)
    try:
        return host, int(port)
    except ValueError:
        raise _bad_address(f"dist_init_addr={address}: the port {port!r} is no number", lines) from None


def _split_ipv6(address: str) -> tuple[str, str]:
    host, bracket, rest = address.partition("]")
    problem = None
    if not bracket:
        problem = "a ] is missing"
    elif not _is_ipv6(host[1:]):
        problem = f"{host[1:]!r} is no IPv6 address"
    elif rest and not rest.startswith(":"):
        problem = f"expected : after ], got {rest!r}"
    elif not rest[1:]:
        problem = "the port is missing"
    if problem is not None:
        raise _bad_address(f"dist_init_addr={address}: {problem}", (2623, 2625))
    return f"{host}]", rest[1:]


def _is_ipv6(host: object) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _bad_address(message: str, lines: tuple[int, int]) -> ConfigError:
    hint = "dist_init_addr=10.0.0.1:5000 or dist_init_addr='[::1]:5000'"
    return ConfigError(Finding("error", "PRT003", message, ("dist_init_addr",), hint, upstream=lines))
