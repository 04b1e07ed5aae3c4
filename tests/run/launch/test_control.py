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

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.run.launch import control
from sglang_hydra.run.launch.control import condition_of
from sglang_hydra.run.launch.log import BoundedLog
from sglang_hydra.run.launch.processes import ProcessName, name_of
from sglang_hydra.run.launch.servers import FAILED, READY, ServerRecord, claim, records
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from tests.commands import must_follow

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
GENTLE = "print(flush=True); import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own."""
    monkeypatch.setenv("SGLANG_HYDRA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what never answers or never ends: no patience with it."""
    monkeypatch.setattr(control, "_HEALTH_S", 0.5)
    monkeypatch.setattr(control, "_EXTRA_S", 0.3)


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
        ({"state": READY}, "busy", "/health gives no answer within 5 s"),
        ({"state": FAILED, "kind": "oom_load"}, "failed", "oom_load"),
        ({"state": READY, "process": replace(own(), host="node7")}, "elsewhere", "on node7"),
        ({"state": READY, "process": replace(own(), started="1")}, "gone", "it was killed, or the machine restarted"),
        ({"process": replace(own(), boot="before")}, "gone", "it was killed, or the machine restarted"),
    ],
)
def test_the_condition_of_a_server_is_what_it_is_now(changes: dict[str, Any], word: str, detail: str) -> None:
    assert condition_of(record(**changes)) == (word, detail)


@pytest.mark.parametrize(("answer", "condition"), [(200, ("ready", "")), (503, ("busy", "/health gives 503"))])
def test_a_server_is_ready_where_its_health_page_says_so(answer: int | None, condition: tuple[str, str]) -> None:
    with page(answer) as url:
        assert condition_of(record(url=url, state=READY)) == condition


@pytest.mark.usefixtures("impatient")
def test_a_server_whose_health_page_is_silent_is_busy() -> None:
    with page(None) as url:
        condition = condition_of(record(url=url, state=READY))
    assert condition == ("busy", "/health gives no answer within 0.5 s")


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
    must_follow(content, "status")
    (server,) = content["servers"]
    assert (server["condition"], server["detail"], server["exit_code"]) == ("failed", "oom_load", 4)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "patience_s", "how", "exit_code"),
    [(GENTLE, 60.0, "stopped", -signal.SIGTERM), (STUBBORN, 2.0, "killed", -signal.SIGKILL)],
)
def test_stop_asks_twice_and_then_kills(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    patience_s: float,
    how: str,
    exit_code: int,
) -> None:
    # Each signal is given that long, the last one too, after which even a stubborn one ends.
    monkeypatch.setattr(control, "_EXTRA_S", patience_s)
    with program(code) as (process, name):
        claim(record(process=name))
        assert control.stop([], as_json=True) == 0
        assert process.wait(30) == exit_code
    content = json.loads(capsys.readouterr().out)
    must_follow(content, "stop")
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


@pytest.mark.usefixtures("impatient")
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


def test_a_server_that_was_compared_says_so_and_one_of_another_plan_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = {"schema": "sglang_hydra.actual/1", "server_id": "0123456789abcdef", "version": "0.5.23"}
    (tmp_path / "actual.json").write_text(json.dumps({**written, "same": 180, "of": 183, "absent": ["a"] * 27}))
    with page(200) as url:
        claim(record(url=url, state=READY, run_folder=str(tmp_path)))
        claim(record(name="other", url=url, state=READY, run_folder=str(tmp_path), server_id="f" * 16))
        assert control.status([]) == 0
        table = capsys.readouterr().out
        assert control.status([], as_json=True) == 0
    assert table.count("as planned") == 1
    assert "ready: 180 of 183 as planned; 27 not in 0.5.23" in " ".join(table.split())
    content = json.loads(capsys.readouterr().out)
    must_follow(content, "status")
    other, compared = content["servers"]
    assert other["actual"] is None
    assert (compared["actual"]["same"], compared["actual"]["of"], compared["actual"]["absent"]) == (180, 183, 27)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "sglang_hydra.actual/1"}', "[" * 5000])
def test_a_comparison_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "actual.json").write_text(content)
    with page(200) as url:
        assert condition_of(record(url=url, state=READY, run_folder=str(tmp_path))) == ("ready", "")


def test_a_damaged_file_is_named_and_left_where_it_is(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim(record())
    (half := state / "servers" / "half.json").write_text('{"schema": "sglang_hydra.serv')
    assert control.status([]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "tiny-30000" in said
    assert f"LCH012 {half} is left out: it is no JSON" in said
    assert f"mv {half} {half}.old" in said
    assert control.status([], as_json=True) == 0
    content = json.loads(capsys.readouterr().out)
    must_follow(content, "status")
    assert [finding["id"] for finding in content["damaged"]] == ["LCH012"]
    with pytest.raises(ConfigError, match=r"half cannot be reached: .*half\.json is left out: it is no JSON"):
        control.stop(["half"])
    assert half.read_text() == '{"schema": "sglang_hydra.serv'


def test_a_state_folder_that_is_none_is_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state.mkdir()
    (state / "servers").write_text("")
    assert [control.status([]), control.stop([]), control.logs([])] == [0, 0, 0]
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("cannot be read: Not a directory") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "--bogus"), "status has no option --bogus; it has --json"),
        (("stop", "--jsno", "tiny"), "stop has no option --jsno; it has --json"),
        (("logs", "-n", "5"), "logs has no option -n; it has -f, --follow"),
        (
            ("diagnose", "--bogus=3", "x"),
            "diagnose has no option --bogus=3; it has --json, --config-dir, --config-name",
        ),
        (("status", "-f"), "-f follows a log and goes with logs, not with status"),
    ],
)
def test_an_option_that_a_verb_does_not_have_is_named_with_those_that_it_has(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry(words) == 2
    assert f"CLI026 {said}" in " ".join(capsys.readouterr().err.split())


def test_without_a_server_every_verb_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert [control.status([]), control.stop([]), control.logs([])] == [0, 0, 0]
    assert capsys.readouterr().out.count("No detached server runs here.") == 3
