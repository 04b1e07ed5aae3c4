"""Implements ``status``, ``stop`` and ``logs`` for servers started with ``launch.detach=true``."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from sglang_hydra.run.launch.display import print_line
from sglang_hydra.run.launch.listening import FOREIGN, port_owner
from sglang_hydra.run.launch.log import LogTail, log_files, log_lines
from sglang_hydra.run.launch.port import HEALTHY, health_of
from sglang_hydra.run.launch.processes import Life
from sglang_hydra.run.launch.server_info import written_comparison
from sglang_hydra.run.launch.servers import FAILED, READY, ServerRecord, chosen, damaged, forget, records, state_folder
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.errors import MachineError, ServerError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.screen import Line, columns, print_json, shown, text, write
from sglang_hydra.text.words import program

_HEALTH_S = 5.0
_AT_ONCE = 16
_LOOK_S = 0.05
_FOLLOW_S = 0.25
# Beyond the server's own stop time: the guard collects the rest, and the supervisor records the end.
_EXTRA_S = 10.0
_LAST_LINES = 40


class Condition(NamedTuple):
    """The state of a server as one word, with a detail."""

    state: str
    detail: str = ""


def status(words: Sequence[str], *, as_json: bool = False) -> int:
    """Shows all detached servers, or the named ones. Returns 0 even when one has failed."""
    known = records()
    picked = chosen(words, known, "status") if words else known
    broken = [] if words else damaged()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        conditions = list(pool.map(condition_of, picked))
    if as_json:
        servers = [
            {**record.to_json(), "condition": condition.state, "detail": condition.detail, "actual": _compared(record)}
            for record, condition in zip(picked, conditions, strict=True)
        ]
        unread = [finding.to_json() for finding in broken]
        folder = str(state_folder())
        print_json({"schema": "sglang_hydra.status/1", "folder": folder, "servers": servers, "damaged": unread})
    else:
        write([*_status_lines(picked, conditions), *finding_lines(broken)])
    return 0


def condition_of(record: ServerRecord) -> Condition:
    """Returns the condition: starting, ready, busy (its health page does not return 200), taken (another process
    answers on its port), failed, gone (its supervisor was killed, or the machine restarted) or elsewhere (another
    machine or container, whose processes are invisible here)."""
    life = record.life
    if record.state == FAILED:
        return Condition("failed", record.kind or "")
    if life is Life.ELSEWHERE:
        return Condition("elsewhere", f"on {record.process.host}")
    if life is Life.GONE:
        return Condition("gone", "it was killed, or the machine restarted")
    if record.state != READY:
        return Condition(record.state, record.milestone)
    place = urlsplit(record.url)
    answer = health_of(place.hostname or "127.0.0.1", place.port, record.health, _HEALTH_S)
    owner = port_owner(place.hostname or "127.0.0.1", place.port or 0, record.process.pid) if answer else None
    if owner is not None and owner.whose == FOREIGN:
        return Condition("taken", f"its port is answered by {owner.who}")
    if answer == HEALTHY:
        compared = _compared(record)
        return Condition("ready", compared["summary"] if compared else "")
    detail = f"{record.health} gives {answer}" if answer else f"{record.health} gives no answer within {_HEALTH_S:g} s"
    return Condition("busy", detail)


def _compared(record: ServerRecord) -> JsonDict | None:
    """Returns the saved comparison of a ready server with its plan, or None."""
    return written_comparison(Path(record.run_folder), record.server_id) if record.state == READY else None


def stop(words: Sequence[str], *, as_json: bool = False) -> int:
    """Stops the named servers in parallel; without a word the only one. Returns 4 if one does not end, 3 if one cannot
    be reached from here."""
    known = records()
    picked = chosen(words, known, "stop")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ends = list(pool.map(_stop, picked))
    if as_json:
        stopped = [
            {"name": record.name, "server_id": record.server_id, "how": end.how, "seconds": round(end.seconds, 3)}
            for record, end in zip(picked, ends, strict=True)
        ]
        print_json({"schema": "sglang_hydra.stop/1", "servers": stopped})
    else:
        both = zip(picked, ends, strict=True)
        write([[text(record.name, "bold"), text(f" {end.message}")] for record, end in both] or _none())
    codes = [end.exit_code for end in ends]
    return next((code for code in (ServerError.exit_code, MachineError.exit_code) if code in codes), 0)


def logs(words: Sequence[str], *, follow: bool = False) -> int:
    """Prints the log of a server. With ``follow``, prints its last lines, then each new line until it ends."""
    known = records()
    picked = chosen(words, known, "logs")
    if len(picked) != 1:
        write([[text("logs shows one server at a time.")]] if picked else _none())
        return 0 if not picked else 2
    record = picked[0]
    path = Path(record.log)
    if not log_files(path):
        message = f"{record.name} has no log any more: {path} is not there"
        gone = Finding("error", "LCH011", message, hint=f"{program()} status {record.name}")
        write(finding_lines([gone]), sys.stderr)
        return MachineError.exit_code
    if not follow:
        for whole in log_lines(path):
            print_line(sys.stdout, whole.decode("utf-8", "replace"))
        return 0
    tail = LogTail(path)
    for line in tail.last(_LAST_LINES):
        print_line(sys.stdout, line)
    alive = True
    while alive:
        alive = record.life is Life.ALIVE
        for line in tail.lines():
            print_line(sys.stdout, line)
        time.sleep(_FOLLOW_S if alive else 0)
    return 0


class _End(NamedTuple):
    how: str
    message: str
    seconds: float = 0.0
    exit_code: int = 0


def _stop(record: ServerRecord) -> _End:
    begun = time.monotonic()
    life = record.life
    if life is Life.ELSEWHERE:
        message = f"runs on {record.process.host}, which cannot be reached from here: type it there"
        return _End("elsewhere", message, exit_code=MachineError.exit_code)
    if life is Life.GONE:
        forget(record)
        how = f"had failed ({record.kind})" if record.state == FAILED else "had ended already"
        return _End("ended", f"{how}; it is forgotten")
    try:
        # The second signal lets it kill the rest; the last one ends the supervisor and with it the server.
        for number, own_s in ((signal.SIGTERM, record.stop_timeout), (signal.SIGTERM, 0.0), (signal.SIGKILL, 0.0)):
            record.process.send(number)
            if _ended(record, own_s + _EXTRA_S):
                seconds = time.monotonic() - begun
                forget(record)
                killed = number == signal.SIGKILL
                return _End("killed" if killed else "stopped", f"stopped after {seconds:.1f} s", seconds)
    except PermissionError:
        message = f"belongs to another user: process {record.process.pid}"
        return _End("refused", message, exit_code=MachineError.exit_code)
    seconds = time.monotonic() - begun
    return _End("alive", f"does not end: process {record.process.pid}", seconds, ServerError.exit_code)


def _ended(record: ServerRecord, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while record.process.life() is Life.ALIVE:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _none() -> list[Line]:
    """Says that no server exists, or that its file cannot be read."""
    return [[text("No detached server runs here.")], *finding_lines(damaged())]


def _status_lines(picked: Sequence[ServerRecord], conditions: Sequence[Condition]) -> list[Line]:
    if not picked:
        return [[text("No detached server runs here. launch.detach=true starts one.")]]
    titles = ("name", "server_id", "url", "pid", "state", "since", "model", "run folder")
    rows = [[text(title, "bold") for title in titles]]
    for record, condition in zip(picked, conditions, strict=True):
        style = {"ready": "green", "starting": "cyan", "busy": "yellow"}.get(condition.state, "red")
        state = condition.state + (f": {condition.detail}" if condition.detail else "")
        since = record.ended_at or record.ready_at or record.started_at
        cells = map(text, (record.name, record.server_id, record.url, str(record.process.pid)))
        model, folder = text(shown(record.model, width=48)), text(record.run_folder, "dim")
        rows.append([*cells, text(state, style), text(_since(since)), model, folder])
    lines = columns(rows)
    for record in (record for record in picked if record.findings):
        lines += [[], [text(record.name, "bold")], *finding_lines(record.findings)]
    return lines


def _since(moment: float) -> str:
    """Formats a time in the local time zone, with its age."""
    seconds = max(0, int(time.time() - moment))
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    ago = f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if seconds >= 3600 else f"{minutes} min"
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(moment))} ({ago if seconds >= 60 else f'{seconds} s'})"
