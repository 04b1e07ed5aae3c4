"""Asks a running server for its arguments and compares them with the plan. Asking takes bounded time, and its failure
is a warning; a server that is not the planned one is an error."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from socket import SHUT_RDWR, socket
from typing import TYPE_CHECKING, Any

from sglang_hydra.arguments.secrets import API_KEY_VARIABLE
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.planning.comparing.actual import SCHEMA, Comparison, compare, summary_of
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch.hydra_run import write_in_run_folder
from sglang_hydra.run.launch.listening import Owner
from sglang_hydra.run.launch.local import Launch, LocalServer
from sglang_hydra.run.launch.port import client_host
from sglang_hydra.show.comparison import comparison_lines
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import MachineError, SglangHydraError
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.screen import Line
from sglang_hydra.text.words import shell_word, short

if TYPE_CHECKING:
    from sglang_hydra.run.launch.as_planned import Compared

ACTUAL = "actual.json"
"""The file in a run folder with the comparison of server and plan."""
NEW_PAGE, OLD_PAGE = "/server_info", "/get_server_info"
_NEW_SINCE = "0.5.6"
_WAIT_S = 10.0
_MOST_BYTES = 16 << 20
_CHUNK = 1 << 16
_MODELS = "/v1/models"
_NOT_OURS = "python -m sglang.bench_serving --backend vllm --base-url URL measures a server that is not SGLang's"


class NoServerInfo(Exception):
    """A server did not report its arguments. The text is the reason as a clause, ``hint`` what to type."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


def after_start(
    plan: Plan,
    host: str,
    port: int,
    folder: Path | None = None,
    *,
    wait_s: float = _WAIT_S,
    owner: Owner | None = None,
    server: LocalServer | None = None,
) -> list[Line]:
    """Compares a ready server with its plan. Returns the lines to show, and writes ``actual.json`` in ``folder``.
    ``owner`` is the seen owner of the port; ``server`` stores a failure.

    Returns no lines for another engine, or for a node other than the first, which answers no requests. Waits at most
    ``wait_s`` seconds for the server's answer. Raises ServerError for a server that is not the planned one."""
    return lines_of(plan, compared_with_plan(plan, host, port, folder, wait_s=wait_s), owner, server)


def lines_of(plan: Plan, compared: Compared, owner: Owner | None, server: LocalServer | None = None) -> list[Line]:
    """Returns the lines of ``after_start`` for a finished comparison. Raises ServerError as it does."""
    from sglang_hydra.run.launch.as_planned import must_be_planned, owner_note

    must_be_planned(plan, compared, owner, server)
    note = owner_note(owner)
    lines = finding_lines([note] if note else [])
    if compared is None:
        return lines
    return [*lines, *(finding_lines([compared]) if isinstance(compared, Finding) else comparison_lines(compared))]


def compared_with_plan(
    plan: Plan, host: str, port: int, folder: Path | None = None, *, wait_s: float = _WAIT_S
) -> Compared:
    """Compares a server with its plan for programs: None if nothing can be compared, a finding if asking failed."""
    if plan.engine.name != "sglang" or plan.values["node_rank"] != 0:
        return None

    try:
        info = read_server_info(host, port, plan.secrets.get("api_key"), plan.engine.version, wait_s=wait_s)
        compared = compare(plan, info)
        if compared.differences or (compared.kv is not None and compared.kv.finding):
            compared = compare(plan, info, _machine(plan))
        if folder is not None:
            write_comparison(folder, plan, compared)
    except (NoServerInfo, ValueError, OSError, MachineError) as failure:
        return not_compared(str(failure))
    except Exception as failure:  # noqa: BLE001 - a server that serves must outlive any mistake in this look at it
        return not_compared(f"a mistake of this program: {type(failure).__name__}: {failure}")
    return compared


def compared_with_written_plan(launch: Launch, folder: Path, server: LocalServer | None = None) -> Compared:
    """Compares the server of ``launch`` with the plan in its run folder. Raises ServerError if ``server``, which was
    started for that plan, is not the planned one."""
    from sglang_hydra.run.launch.as_planned import must_be_planned

    try:
        plan, _ = written_plan(folder, launch.command.secret)
    except SglangHydraError as failure:
        return not_compared(str(failure))
    except Exception as failure:  # noqa: BLE001 - as above
        return not_compared(f"a mistake of this program: {type(failure).__name__}: {failure}")
    compared = compared_with_plan(plan, launch.host, launch.port, folder)
    if server is not None:
        must_be_planned(plan, compared, server.owner, server)
    return compared


def written_plan(
    folder: Path, key: str | None = None, env: Mapping[str, str] | None = None
) -> tuple[Plan, list[Request]]:
    """Makes the plan that is in a run folder again, with the server's API ``key``; and the requests that it is made of.

    Raises SglangHydraError for a file that is no plan, or cannot be planned here."""
    from sglang_hydra.planning.recorded.input_files import read_document

    document = read_document(folder / "plan.json")
    requests = [*document.requests, *([Request.typed("api_key", key, "the server's own", "lock")] if key else ())]
    recorded = document.recorded
    seed = recorded.seed if recorded is not None else None
    return make_plan(Composer([], PRIMARY_NAME), requests, recorded=recorded, seed=seed, env=env), requests


def read_server_info(
    host: str, port: int, key: str | None = None, version: str = "", *, wait_s: float = _WAIT_S, secure: bool = False
) -> Mapping[str, object]:
    """Returns the server's report of its arguments, from either of its two pages; ``secure`` uses https.

    Raises NoServerInfo if the server does not answer within ``wait_s`` seconds, refuses, or answers with something
    else."""
    # Not urllib, because it obeys proxy settings.
    import http.client

    pages = [NEW_PAGE, OLD_PAGE] if at_least(version, _NEW_SINCE) else [OLD_PAGE, NEW_PAGE]
    pages.append(_MODELS)  # of a server with neither page: its owner
    until, late_words = time.monotonic() + wait_s, f"it did not answer within {wait_s:g} s"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    for page in pages:
        left = max(0.1, until - time.monotonic())
        connection = connect(client_host(host), port, timeout=left)
        late = threading.Timer(left, lambda: None)
        try:
            connection.connect()
            # An answer that comes byte by byte would outlast every socket timeout.
            late = threading.Timer(left, _hang_up, (connection.sock,))
            late.daemon = True
            late.start()
            connection.request("GET", page, headers=headers)
            with connection.getresponse() as answer:
                status, content = answer.status, _read(answer)
        except (OSError, http.client.HTTPException) as failure:
            is_late = isinstance(failure, TimeoutError) or time.monotonic() >= until
            raise NoServerInfo(late_words if is_late else f"{page}: {failure or type(failure).__name__}") from failure
        finally:
            late.cancel()
            connection.close()
        if time.monotonic() >= until:
            raise NoServerInfo(late_words)
        if status == http.client.OK and page == _MODELS:
            raise _other_server(content)
        if status == http.client.OK:
            return _parsed(page, content)
        if status != http.client.NOT_FOUND:
            break
    refused = status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN)
    raise NoServerInfo(f"{page} answered {status}", f"{API_KEY_VARIABLE} is its key" if refused else _NOT_OURS)


def written_comparison(folder: Path, server_id: str) -> JsonDict | None:
    """Returns the summary of the comparison in a run folder: ``same``, ``of``, ``absent``, ``version`` and ``summary``.

    None if there is no readable one for the plan ``server_id``."""
    try:
        record = read_json(read_text(folder / ACTUAL), "record")
        if record["schema"] != SCHEMA or record["server_id"] != server_id:
            return None
        same, of, absent = int(record["same"]), int(record["of"]), len(record["absent"])
        version = str(record["version"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    summary = summary_of(same, of, absent, version)
    return {"same": same, "of": of, "absent": absent, "version": version, "summary": summary}


def _other_server(content: bytes) -> NoServerInfo:
    """Returns the error for a server that serves models but is not SGLang."""
    try:
        first = _parsed(_MODELS, content)["data"][0]
        who = f"{_MODELS} says that {short(str(first.get('owned_by')))} serves {short(str(first.get('id')))}"
    except (NoServerInfo, LookupError, TypeError, AttributeError):
        who = f"{_MODELS} is all that it has"
    return NoServerInfo(f"it is no server of SGLang: {NEW_PAGE} is not there, and {who}", _NOT_OURS)


def _read(answer: Any) -> bytes:
    content = b""
    while chunk := answer.read(_CHUNK):
        content += chunk
        if len(content) > _MOST_BYTES:
            raise NoServerInfo(f"its answer is longer than {_MOST_BYTES >> 20} MiB")
    return content


def _parsed(page: str, content: bytes) -> JsonObject:
    try:
        info = read_json(content, "record")
    except (ValueError, RecursionError) as failure:
        raise NoServerInfo(f"{page} did not answer with JSON") from failure
    if not isinstance(info, dict):
        raise NoServerInfo(f"{page} answered with a {type(info).__name__}, not with a mapping")
    return info


def _hang_up(connected: socket) -> None:
    """Ends a connection, which wakes the thread that reads from it."""
    with contextlib.suppress(OSError):
        connected.shutdown(SHUT_RDWR)


def _machine(plan: Plan) -> GpuFacts | None:
    """Probes this machine's GPUs for a plan that needs GPUs; None without them."""
    if plan.gpu.device in (None, "cpu"):
        return None

    from sglang_hydra.facts.probe import probe_gpu

    probe = probe_gpu(os.environ, python=plan.engine.python)
    return probe.facts() if probe.found else None


def not_compared(why: str) -> Finding:
    message = f"the server's arguments could not be compared with the plan: {why}"
    return Finding("warning", "ACT003", message, ("engine",))


def write_comparison(folder: Path, plan: Plan, compared: Comparison) -> None:
    """Writes ``actual.json`` to a run folder. Raises MachineError if it cannot be written."""
    write_in_run_folder(folder / ACTUAL, json.dumps(compared.to_json(plan), indent=2, allow_nan=False) + "\n")


def curl_line(plan: Plan, url: str, *, stream: bool = True) -> str:
    """Returns ``curl -N URL/v1/chat/completions ...`` for a server of ``plan`` at ``url``. The API key is ``$KEY``."""
    name = plan.values["served_model_name"] or plan.values["model_path"]
    body = {"model": name, "messages": [{"role": "user", "content": "Hello!"}], **({"stream": True} if stream else {})}
    body["max_tokens"] = 32
    key = ' -H "Authorization: Bearer $KEY"' if plan.secrets else ""
    typed = f"-H 'Content-Type: application/json' -d {shell_word(json.dumps(body))}"
    return f"curl -N {url}/v1/chat/completions{key} {typed}"
