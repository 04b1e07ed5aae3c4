"""What status, stop and logs say of servers in every condition, without starting one."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sglang_hydra.findings import Finding
from sglang_hydra.launch import control
from sglang_hydra.launch.control import Tail, condition_of
from sglang_hydra.launch.log import BoundedLog
from sglang_hydra.launch.processes import ProcessName, name_of
from sglang_hydra.launch.servers import FAILED, READY, ServerRecord, claim, records
from sglang_hydra.schemas import schema_of

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
GENTLE = "print(flush=True); import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own, and no patience."""
    monkeypatch.setenv("SGLANG_HYDRA_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(control, "_HEALTH_S", 0.5)
    monkeypatch.setattr(control, "_EXTRA_S", 0.3)
    return tmp_path / "state"


def own() -> ProcessName:
    name = name_of(os.getpid())
    assert name is not None
    return name


def record(**changes: Any) -> ServerRecord:
    fields: dict[str, Any] = {
        "name": "tiny-30000",
        "server_id": "0123456789abcdef",
        "url": "http://127.0.0.1:9",
        "health": "/health",
        "model": "tiny",
        "engine": "sglang 0.5.2",
        "run_folder": "/runs/1",
        "log": "/runs/1/server.log",
        "stop_timeout": 0.2,
        "process": own(),
        "started_at": time.time() - 100,
    }
    return ServerRecord(**{**fields, **changes})


@contextmanager
def page(status: int | None) -> Iterator[str]:
    """A health page that answers so, or never."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status is None:
                over.wait(30)
                return
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    over = threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        server.server_close()


@contextmanager
def program(code: str) -> Iterator[tuple[subprocess.Popen[bytes], ProcessName]]:
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        name = name_of(process.pid)
        assert name is not None
        try:
            yield process, name
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("changes", "word", "detail"),
    [
        ({}, "starting", ""),
        ({"milestone": "loading weights 40 %"}, "starting", "loading weights 40 %"),
        ({"state": READY}, "busy", "/health gives no answer within 0.5 s"),
        ({"state": FAILED, "kind": "oom_load"}, "failed", "oom_load"),
        ({"state": READY, "process": replace(own(), host="node7")}, "elsewhere", "on node7"),
        ({"state": READY, "process": replace(own(), started="1")}, "gone", "it was killed, or the machine restarted"),
        ({"process": replace(own(), boot="before")}, "gone", "it was killed, or the machine restarted"),
    ],
)
def test_the_condition_of_a_server_is_what_it_is_now(changes: dict[str, Any], word: str, detail: str) -> None:
    assert condition_of(record(**changes)) == (word, detail)


@pytest.mark.parametrize(
    ("answer", "condition"),
    [
        (200, ("ready", "")),
        (503, ("busy", "/health gives 503")),
        (None, ("busy", "/health gives no answer within 0.5 s")),
    ],
)
def test_a_server_is_ready_where_its_health_page_says_so(answer: int | None, condition: tuple[str, str]) -> None:
    with page(answer) as url:
        assert condition_of(record(url=url, state=READY)) == condition


def test_the_table_and_its_json_show_every_condition(capsys: pytest.CaptureFixture[str]) -> None:
    why = Finding("error", "ENG008", "it ended\x1b[2J", ("engine",), "see its log")
    claim(record(name="one"))
    claim(record(name="two", state=FAILED, kind="oom_load", ended_at=time.time(), findings=(why,), exit_code=4))
    claim(record(name="three", process=replace(own(), host="node7"), model="[red]$(rm)\x1b[31m"))
    assert control.status([]) == 0
    table = capsys.readouterr().out
    for word in ("one", "two", "three", "failed: oom_load", "elsewhere: on node7", "1 min", "ENG008", "\\x1b[31m"):
        assert word in table
    assert "\x1b" not in table
    assert control.status(["two"], as_json=True) == 0
    content = json.loads(capsys.readouterr().out)
    jsonschema.validate(content, schema_of("status"))
    (server,) = content["servers"]
    assert (server["condition"], server["detail"], server["exit_code"]) == ("failed", "oom_load", 4)


@pytest.mark.parametrize(
    ("code", "how", "exit_code"), [(GENTLE, "stopped", -signal.SIGTERM), (STUBBORN, "killed", -signal.SIGKILL)]
)
def test_stop_asks_twice_and_then_kills(
    capsys: pytest.CaptureFixture[str], code: str, how: str, exit_code: int
) -> None:
    with program(code) as (process, name):
        claim(record(process=name))
        assert control.stop([], as_json=True) == 0
        assert process.wait(30) == exit_code
    content = json.loads(capsys.readouterr().out)
    jsonschema.validate(content, schema_of("stop"))
    assert [server["how"] for server in content["servers"]] == [how]
    assert records() == []


def test_stop_leaves_alone_what_is_not_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with program(GENTLE) as (process, name):
        claim(record(name="reused", process=replace(name, started="1")))
        claim(record(name="elsewhere", process=replace(name, host="node7")))
        assert control.stop(["all"]) == 3
        assert process.poll() is None
    said = capsys.readouterr().out
    assert "reused had ended already; it is forgotten" in said
    assert "elsewhere runs on node7, which cannot be reached from here" in said
    assert [item.name for item in records()] == ["elsewhere"]


def test_stop_says_so_where_a_server_is_another_users(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(ProcessName, "send", refuse)
    claim(record())
    assert control.stop([]) == 3
    assert f"belongs to another user: process {os.getpid()}" in capsys.readouterr().out


def test_stop_says_so_where_a_server_does_not_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessName, "send", lambda *_: True)
    claim(record())
    assert control.stop([]) == 4
    assert f"does not end: process {os.getpid()}" in capsys.readouterr().out
    assert len(records()) == 1


def test_logs_are_whole_across_their_files_and_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = BoundedLog(tmp_path / "server.log", limit=1000)
    for number in range(150):
        log.write(b"line %d\n" % number)
    log.write(b"\x1b[31mred\x1b[0m \x1b]0;title\x07\ttab [bold]\n")
    log.close()
    claim(record(log=str(log.path)))
    assert control.logs([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:-1] == [f"line {number}" for number in range(150)]
    assert lines[-1] == "red \\x1b]0;title\\x07\ttab [bold]"


def test_logs_that_are_gone_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim(record(log=str(tmp_path / "server.log")))
    assert control.logs([]) == 3
    assert "LCH011" in capsys.readouterr().err


def test_without_a_server_every_verb_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert [control.status([]), control.stop([]), control.logs([])] == [0, 0, 0]
    assert capsys.readouterr().out.count("No detached server is there.") == 3


def test_a_followed_log_loses_nothing_when_it_turns_over(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "server.log", limit=1000)
    log.write(b"old 1\nold 2\nold 3\n")
    tail = Tail(log.path)
    assert tail.last(2) == [b"old 2", b"old 3"]
    seen: list[bytes] = []
    for number in range(300):
        log.write(b"line %d\n" % number)
        if number % 50 == 49:
            seen += list(tail.new())
    log.close()
    tail.close()
    assert seen == [b"line %d" % number for number in range(300)]
