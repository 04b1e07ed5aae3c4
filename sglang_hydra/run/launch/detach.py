"""Implements ``launch.detach=true``: starts a server that continues after this command returns.

A separate process, the supervisor, starts the server and stays with it. This command shows its events until the server
is ready, then asks the supervisor to keep the server."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, NamedTuple

from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch.child_srun import as_message
from sglang_hydra.run.launch.display import Display, display_for, write_lines
from sglang_hydra.run.launch.local import Launch
from sglang_hydra.run.launch.servers import short_name
from sglang_hydra.run.launch.signals import stopping_on_signals
from sglang_hydra.run.launch.supervisor import KEEP, OWN_LOG
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.errors import MachineError, ServerError
from sglang_hydra.text.exit_codes import INTERRUPTED
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.screen import Line, text
from sglang_hydra.text.words import program

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
# It has written its last line and only has to end.
_END_S = 5.0


class StartResult(NamedTuple):
    """The result of a start: the server's name (None if it failed before it got one) and the exit code of this command.
    ``server_exit`` is the exit code of a server that failed by itself."""

    name: str | None
    exit_code: int
    findings: tuple[Finding, ...] = ()
    server_exit: int | None = None


def start_detached(
    plan: Plan,
    launch: Launch,
    folder: Path,
    ready_lines: Callable[[float], Sequence[Line]],
    explained: Callable[[Sequence[Finding], int | None], Sequence[Finding]],
    *,
    wait: bool = True,
) -> int:
    """Starts the server of ``plan`` and returns the exit code when it is ready, or, with ``wait=False``, once it is
    entered in the state folder. ``ready_lines`` gives the lines for a ready server, by the seconds it took.
    ``explained`` extends the findings on a failed server, by its exit code."""

    def ready(name: str, seconds: float) -> None:
        write_lines([*ready_lines(seconds), [text("  it keeps running after this command", "dim")], *_how_to(name)])

    result = follow({**orders_of(plan, launch, folder), "comparing": not wait}, folder, display_for(), ready, wait=wait)
    write_lines(finding_lines(explained(result.findings, result.server_exit)), sys.stderr)
    if result.exit_code == 0 and not wait and result.name is not None:
        write_lines([[], [text(f"{result.name} is starting", "bold green")], *_how_to(result.name)])
    return result.exit_code


def orders_of(plan: Plan, launch: Launch, folder: Path) -> dict[str, object]:
    """Makes the orders for the supervisor. They contain the API key, so they are passed through a pipe."""
    served, preset = plan.values["served_model_name"], plan.nodes.model.name
    model = str(served or plan.values["model_path"])
    return {
        "launch": {**asdict(launch), "log_file": str(launch.log_file) if launch.log_file else None},
        "record": {
            "name": short_name(str(preset or model), launch.port),
            "server_id": plan.server_id,
            "url": launch.url,
            "health": launch.health_path,
            "model": model,
            "engine": f"{plan.engine.name} {plan.engine.version}",
            "run_folder": str(folder),
            "log": str(launch.log_file or ""),
            "stop_timeout": launch.stop_timeout_s,
        },
    }


def follow(
    orders: JsonDict, folder: Path, display: Display, ready: Callable[[str, float], None], *, wait: bool = True
) -> StartResult:
    """Starts a supervisor with ``orders`` and shows its events until it may keep the server alone.

    An interrupt before that stops the server. Calls ``ready`` with the server's name and the seconds that it took."""
    with _supervisor(folder) as process, stopping_on_signals(process.terminate) as signals:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(as_message(orders))
        name = None
        try:
            for event in _events(process.stdout):
                kind = event.pop("event")
                if kind == "claimed":
                    name = event["name"]
                if kind == "ready":
                    display.close()
                    ready(str(name), event["seconds"])
                if kind == ("ready" if wait else "claimed") and not signals:
                    process.stdin.write(KEEP)
                elif kind == "kept":
                    return StartResult(name, INTERRUPTED if signals else 0)
                elif kind == "ended":
                    code = INTERRUPTED if signals else event["exit_code"]
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_END_S)
                    findings = tuple(map(Finding.from_json, event["findings"]))
                    return StartResult(name, code or ServerError.exit_code, findings, event["server_exit"])
                elif kind in ("line", "waiting", "note"):
                    getattr(display, kind)(**event)
        finally:
            display.close()
        if signals:
            return StartResult(name, INTERRUPTED)
        message = "the supervisor of the server ended without a message; the server ended with it"
        crashed = Finding("error", "LCH009", message, ("launch.detach",), f"see {folder / OWN_LOG}")
        return StartResult(name, 1, (crashed,))


@contextlib.contextmanager
def _supervisor(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yields the running supervisor. At the end of the block it stops its server unless it was asked to keep it."""
    log = folder / OWN_LOG
    try:
        errors: IO[bytes] | int = log.open("ab")
    except OSError:
        errors = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [sys.executable, str(_SUPERVISOR)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    except OSError as failure:
        message = f"no process can be started: {failure.strerror or failure}"
        hint = "ulimit -u shows how many this user may have"
        raise MachineError(Finding("error", "LCH010", message, ("launch.detach",), hint)) from failure
    finally:
        if not isinstance(errors, int):
            errors.close()
    try:
        yield process
    finally:
        # This ends its standard input: it continues alone, or stops its server and ends.
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0)
        # Not waited for, because it outlives us. Python would warn of a running child.
        process.returncode = process.returncode or 0


def _events(stream: IO[bytes]) -> Iterator[JsonDict]:
    pending = b""
    while chunk := os.read(stream.fileno(), 1 << 16):
        *lines, pending = (pending + chunk).split(b"\n")
        yield from map(json.loads, lines)


def _how_to(name: str) -> list[Line]:
    typed = program()
    return [
        [text(f"  {typed} status"), text("          every detached server", "dim")],
        [text(f"  {typed} logs -f {name}")],
        [text(f"  {typed} stop {name}")],
        [],
    ]
