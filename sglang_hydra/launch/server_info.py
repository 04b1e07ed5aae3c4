"""Asks a running server what it runs with, and tells the user how that compares. Never more than a look: the time is
bounded, and whatever goes wrong is a warning."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_hydra.errors import MachineError
from sglang_hydra.findings import Finding
from sglang_hydra.launch.port import client_host
from sglang_hydra.screen import Line, columns, shown, text
from sglang_hydra.versions.order import at_least

if TYPE_CHECKING:
    from socket import socket

    from sglang_hydra.facts.gpu import GpuFacts
    from sglang_hydra.launch.actual import Comparison
    from sglang_hydra.plans import Plan

NEW_PAGE, OLD_PAGE = "/server_info", "/get_server_info"
_NEW_SINCE = "0.5.6"
_WAIT_S = 10.0
_MOST_BYTES = 16 << 20
_CHUNK = 1 << 16


class NoServerInfo(Exception):
    """A server did not say what it runs with; the text is why, in a clause."""


def after_start(plan: Plan, host: str, port: int, folder: Path | None = None, *, wait_s: float = _WAIT_S) -> list[Line]:
    """Compares a server that is up with its plan: the lines to show, and ``actual.json`` in ``folder``.

    For SGLang's own server; another engine has nothing to compare and gets no line, and no more a node other than the
    first, which answers no questions. Takes ``wait_s`` seconds at most
    for the server's answer. Raises nothing.
    """
    if plan.engine.name != "sglang" or plan.values["node_rank"] != 0:
        return []
    from sglang_hydra.launch.actual import compare

    try:
        info = read_server_info(host, port, plan.secrets.get("api_key"), plan.engine.version, wait_s=wait_s)
        compared = compare(plan, info)
        if compared.differences or (compared.kv is not None and compared.kv.finding):
            compared = compare(plan, info, _machine(plan))
        if folder is not None:
            _write(folder / "actual.json", compared.to_json(plan))
    except (NoServerInfo, ValueError, OSError, MachineError) as failure:
        return _warning(str(failure))
    except Exception as failure:  # noqa: BLE001 - a server that serves must outlive any mistake in this look at it
        return _warning(f"a mistake of this program: {type(failure).__name__}: {failure}")
    return comparison_lines(compared)


def read_server_info(
    host: str, port: int, key: str | None = None, version: str = "", *, wait_s: float = _WAIT_S
) -> Mapping[str, Any]:
    """The server's own account of its arguments, from whichever of the two pages it has.

    Raises NoServerInfo for a server that does not answer within ``wait_s`` seconds, refuses, or answers with something
    else.
    """
    pages = [NEW_PAGE, OLD_PAGE] if at_least(version, _NEW_SINCE) else [OLD_PAGE, NEW_PAGE]
    answer: list[Mapping[str, Any] | Exception] = []
    asked: list[socket] = []

    def ask() -> None:
        try:
            answer.append(_ask(host, port, key, pages, asked, wait_s))
        except Exception as failure:  # noqa: BLE001 - it is raised again in the thread that waits
            answer.append(failure)

    # A thread of its own: a server that sends its answer byte by byte would outlast every time-out of a socket.
    asking = threading.Thread(target=ask, name="server-info", daemon=True)
    asking.start()
    asking.join(wait_s)
    if not answer:
        _hang_up(asked)
        raise _late(wait_s)
    if isinstance(answer[0], Exception):
        raise answer[0]
    return answer[0]


def comparison_lines(compared: Comparison) -> list[Line]:
    """What a person reads: how many arguments are as planned, each that is not and why, and the KV cache."""
    from sglang_hydra.explain import finding_lines

    good = not compared.differences
    lines: list[Line] = [[text(f"{compared.summary}", "bold green" if good else "bold")]]
    rows = [
        [
            text("~", "yellow"),
            text(item.field),
            text(f"{shown(item.planned, width=24)} -> {shown(item.actual, width=36)}"),
            text(item.reason, "dim"),
        ]
        for item in compared.differences
    ]
    lines += columns(rows)
    told = [finding for finding in compared.findings if finding.id != "ACT001"]
    if compared.kv is not None and compared.kv.finding is None:
        lines.append([text(f"  {compared.kv.text}", "dim" if compared.kv.planned is None else "")])
    return [*lines, [], *finding_lines(told)]


def _ask(
    host: str, port: int, key: str | None, pages: list[str], asked: list[socket], wait_s: float
) -> Mapping[str, Any]:
    # Not urllib: it would obey proxy settings.
    import http.client

    until = time.monotonic() + wait_s
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    status = 0
    for page in pages:
        connection = http.client.HTTPConnection(client_host(host), port, timeout=max(0.1, until - time.monotonic()))
        try:
            connection.connect()
            asked.append(connection.sock)
            connection.request("GET", page, headers=headers)
            with connection.getresponse() as answer:
                status, content = answer.status, _read(answer)
        except TimeoutError as failure:
            raise _late(wait_s) from failure
        except (OSError, http.client.HTTPException) as failure:
            raise NoServerInfo(f"{page}: {failure or type(failure).__name__}") from failure
        finally:
            connection.close()
        if status == http.client.OK:
            return _parsed(page, content)
        if status != http.client.NOT_FOUND:
            break
    raise NoServerInfo(f"{page} answered {status}")


def _late(wait_s: float) -> NoServerInfo:
    return NoServerInfo(f"it did not answer within {wait_s:g} s")


def _read(answer: Any) -> bytes:
    content = b""
    while chunk := answer.read(_CHUNK):
        content += chunk
        if len(content) > _MOST_BYTES:
            raise NoServerInfo(f"its answer is longer than {_MOST_BYTES >> 20} MiB")
    return content


def _parsed(page: str, content: bytes) -> Mapping[str, Any]:
    try:
        info = json.loads(content)
    except (ValueError, RecursionError) as failure:
        raise NoServerInfo(f"{page} answered with what is no JSON") from failure
    if not isinstance(info, dict):
        raise NoServerInfo(f"{page} answered with a {type(info).__name__}, not with a mapping")
    return info


def _hang_up(connections: list[socket]) -> None:
    """Wakes whoever still reads from them."""
    from socket import SHUT_RDWR

    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(SHUT_RDWR)


def _machine(plan: Plan) -> GpuFacts | None:
    """What this machine's GPUs say of themselves, for a plan that is for GPUs; None where nothing can be asked."""
    if plan.gpu.device in (None, "cpu"):
        return None
    import os

    from sglang_hydra.facts.probe import probe_gpu

    probe = probe_gpu(os.environ, python=plan.engine.python)
    return probe.facts() if probe.found else None


def _warning(why: str) -> list[Line]:
    from sglang_hydra.explain import finding_lines

    message = f"what the server runs with could not be compared with the plan: {why}"
    return finding_lines([Finding("warning", "ACT003", message, ("engine",))])


def _write(path: Path, record: Mapping[str, Any]) -> None:
    from sglang_hydra.launch.hydra_run import write_whole

    write_whole(path, json.dumps(record, indent=2, allow_nan=False) + "\n")
