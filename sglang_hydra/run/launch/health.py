"""Asks a server's health page."""

from __future__ import annotations

HEALTHY = 200


def health_of(host: str, port: int | None, path: str, timeout_s: float) -> int | None:
    """The status that the page answers now, 200 for a server that can serve; None without an answer within
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
