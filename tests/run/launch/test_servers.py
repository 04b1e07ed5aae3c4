"""The files of detached servers: one a server, never another's process, and no word that means two."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.run.launch import processes as processes_module
from sglang_hydra.run.launch import servers
from sglang_hydra.run.launch.port import port_obstacle
from sglang_hydra.run.launch.processes import Life, ProcessName, name_of
from sglang_hydra.run.launch.servers import (
    FAILED,
    ServerRecord,
    chosen,
    claim,
    damaged,
    forget,
    records,
    short_name,
    update,
)
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.findings import Finding
from tests.commands import must_follow
from tests.run.launch.processes import wait_until

WHY = Finding("error", "ENG008", "it ended", ("engine",), "see its log", upstream=(1, 2))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own."""
    monkeypatch.setenv("SGLANG_HYDRA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "servers"


@pytest.fixture
def sleeper() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes that do nothing."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def own() -> ProcessName:
    name = name_of(os.getpid())
    assert name is not None
    return name


def record(name: str = "tiny-30000", **changes: Any) -> ServerRecord:
    fields: dict[str, Any] = {
        "name": name,
        "server_id": "0123456789abcdef",
        "url": "http://127.0.0.1:30000",
        "health": "/health",
        "model": "tiny",
        "engine": "sglang 0.5.2",
        "run_folder": "/runs/1",
        "log": "/runs/1/server.log",
        "stop_timeout": 12.0,
        "process": own(),
        "started_at": 1000.0,
    }
    return ServerRecord(**{**fields, **changes})


def dead(process: subprocess.Popen[bytes]) -> ProcessName:
    name = name_of(process.pid)
    assert name is not None
    process.kill()
    process.wait()
    return name


def test_a_server_is_written_down_and_read_again(state: Path) -> None:
    written = claim(record(findings=(WHY,)))
    assert records() == [written]
    content = json.loads((state / "tiny-30000.json").read_text())
    must_follow(content, "server")
    assert stat.S_IMODE((state / "tiny-30000.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_what_changes_is_written_and_what_is_forgotten_is_gone() -> None:
    written = claim(record())
    update(replace(written, state="ready", ready_at=1010.0))
    assert [item.state for item in records()] == ["ready"]
    forget(written)
    assert records() == []
    forget(written)


def test_a_name_that_a_living_server_has_gets_a_number() -> None:
    assert [claim(record()).name for _ in range(3)] == ["tiny-30000", "tiny-30000-2", "tiny-30000-3"]


def test_a_name_whose_server_is_gone_or_failed_is_free(sleeper: Any) -> None:
    claim(record(process=dead(sleeper())))
    assert claim(record()).name == "tiny-30000"
    update(record(state=FAILED, ended_at=time.time()))
    assert claim(record()).name == "tiny-30000"


def test_the_name_of_a_server_on_another_machine_is_taken() -> None:
    claim(record(process=replace(own(), host="elsewhere")))
    assert claim(record()).name == "tiny-30000-2"


def test_many_that_start_at_once_get_a_name_each() -> None:
    names: list[str] = []
    threads = [threading.Thread(target=lambda: names.append(claim(record()).name)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(names)) == 8


def test_a_taken_port_names_the_first_that_wanted_it_and_not_who_wants_it_now(sleeper: Any) -> None:
    names = [name_of(sleeper().pid) for _ in range(2)]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        wanted = {"name": f"tiny-{port}", "url": f"http://127.0.0.1:{port}"}
        for number, process in enumerate([names[0], names[1], own()]):
            assert process is not None
            claim(record(**wanted, process=process, started_at=1000.0 + number))
        found = port_obstacle("127.0.0.1", port)
        assert found is not None
        assert str(found.hint).endswith(f"stop tiny-{port}")
        forget(next(item for item in records() if item.started_at == 1000.0))
        assert [item.name for item in records()] == [f"tiny-{port}-2", f"tiny-{port}-3"]
        assert str(port_obstacle("127.0.0.1", port).hint).endswith(f"stop tiny-{port}-2")  # type: ignore[union-attr]


def test_one_does_not_remove_the_file_of_the_next() -> None:
    first = claim(record(process=replace(own(), pid=1)))
    claim(record())
    forget(first)
    assert len(records()) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "another"}, "it is the file of 'another', under another name"),
        ({"url": 5}, "url is 5"),
        ({"url": "file:///etc/passwd"}, "url is 'file:///etc/passwd'"),
        ({"url": "http://127.0.0.1:99999"}, "url is 'http://127.0.0.1:99999'"),
        ({"health": "no path"}, "health is 'no path'"),
        ({"started_at": "yesterday"}, "started_at is 'yesterday'"),
        ({"started_at": 1e300}, "started_at is 1e+300"),
        ({"ready_at": float("nan")}, "ready_at is nan"),
        ({"stop_timeout": -1}, "stop_timeout is -1"),
        ({"stop_timeout": float("inf")}, "stop_timeout is inf"),
        ({"state": "odd"}, "state is 'odd'"),
        ({"findings": [{"id": "X"}]}, "findings.level is missing"),
        ({"findings": None}, "findings is None"),
        (
            {"findings": [{"level": "odd", "id": "ABC001", "message": "", "fields": [], "hint": None}]},
            "level is 'odd'",
        ),
        ({"process": {}}, "process.pid is missing"),
        ({"process": {"pid": 0, "started": "", "boot": "", "namespace": "", "host": ""}}, "pid is 0"),
        ({"process": {"pid": -1, "started": "", "boot": "", "namespace": "", "host": ""}}, "pid is -1"),
        ({"schema": "sglang_hydra.server/2"}, 'its schema is "sglang_hydra.server/2", and this sglang-hydra reads'),
        ({"more": 1}, "it has a key 'more' that is unknown"),
    ],
    ids=str,
)
def test_a_file_that_was_changed_is_named_with_what_is_wrong(state: Path, change: dict[str, Any], why: str) -> None:
    claim(record())
    path = state / "tiny-30000.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    before = path.read_text()
    assert records() == []
    (finding,) = damaged()
    assert finding.message.startswith(f"{path} is left out: {why}")
    assert claim(record()).name == "tiny-30000-2"
    forget(record())
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.mkdir(), "it is no file"),
        (os.mkfifo, "it is no file"),
        (lambda path: path.symlink_to("nowhere"), "it cannot be read: No such file or directory"),
        (lambda path: path.write_bytes(b""), "it is empty"),
        (lambda path: path.write_bytes(b"\xff"), "it is no JSON"),
        (lambda path: path.write_text("[" * 100_000), "it is no JSON"),
        (lambda path: path.write_bytes(b" " * (1 << 21)), "it has 2097152 bytes"),
    ],
)
def test_what_is_no_file_of_ours_is_named_and_stays(state: Path, make: Callable[[Path], object], why: str) -> None:
    state.mkdir(parents=True)
    make(state / "odd.json")
    (state / ".odd.1.part").write_text("{")
    (state / "notes.txt").write_text("mine")
    assert records() == []
    (finding,) = damaged()
    assert (finding.id, finding.level) == ("LCH012", "warning")
    assert finding.message == f"{state / 'odd.json'} is left out: {why}"
    assert len(list(state.iterdir())) == 3


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"schema": "sglang_hydra.server/1"}', '{"schema": 3}', "\0"])
def test_a_file_that_is_none_of_ours_is_left_out(state: Path, content: str) -> None:
    state.mkdir(parents=True)
    (state / "odd.json").write_text(content)
    assert records() == []
    assert claim(record(name="odd")).name == "odd-2"


def test_a_file_under_another_name_than_its_own_is_left_out(state: Path) -> None:
    claim(record())
    (state / "tiny-30000.json").rename(state / "other.json")
    assert records() == []


def test_failed_ones_are_forgotten_after_a_week() -> None:
    claim(record("old", state=FAILED, ended_at=time.time() - 8 * 24 * 3600))
    claim(record("new", state=FAILED, ended_at=time.time() - 3600))
    claim(record())
    assert [item.name for item in records()] == ["new", "tiny-30000"]


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null/state"])
def test_a_state_folder_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("SGLANG_HYDRA_STATE_DIR", place)
    with pytest.raises(MachineError) as refused:
        claim(record())
    (finding,) = refused.value.findings
    assert finding.id == "LCH008"
    assert place in finding.message
    assert records() == []


def test_a_full_disk_leaves_the_file_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    written = claim(record())

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(servers, "write_whole", full)
    update(replace(written, state="ready"))
    assert records() == [written]


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"SGLANG_HYDRA_STATE_DIR": "/a/b"}, "/a/b"),
        ({"SGLANG_HYDRA_STATE_DIR": "~/b"}, "/home/me/b"),
        ({"XDG_STATE_HOME": "/x"}, "/x/sglang_hydra"),
        ({"XDG_STATE_HOME": "relative"}, "/home/me/.local/state/sglang_hydra"),
        ({}, "/home/me/.local/state/sglang_hydra"),
    ],
)
def test_the_state_folder_is_where_the_user_wants_it(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], folder: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for name in ("SGLANG_HYDRA_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert str(servers.state_folder()) == folder


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ["one-1", "other-2"]),
        (["all"], ["one-1", "other-2"]),
        (["one-1"], ["one-1"]),
        (["one"], ["one-1"]),
        (["2"], ["other-2"]),
        (["http://127.0.0.1:2"], ["other-2"]),
        (["aaaa"], ["one-1"]),
        (["bbbbbb", "one-1", "one"], ["other-2", "one-1"]),
    ],
)
def test_a_server_is_named_by_name_port_url_or_id(words: list[str], names: list[str]) -> None:
    known = [
        record("one-1", url="http://127.0.0.1:1", server_id="aaaa000000000000"),
        record("other-2", url="http://127.0.0.1:2", server_id="bbbbbb0000000000"),
    ]
    if not words:
        assert [item.name for item in chosen(words, known[:1], "stop")] == names[:1]
        assert chosen(words, [], "stop") == []
    else:
        assert [item.name for item in chosen(words, known, "stop")] == names


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ([], "stop which one? There are one-1, one-2", "stop one-1"),
        (["one"], "one may be one-1, one-2", "stop one-1"),
        (["0123"], "0123 may be one-1, one-2", "stop one-1"),
        (["ne-1"], "no detached server is named 'ne-1': there are one-1, one-2", None),
        (["\x1b[2J$(rm)"], "no detached server is named", None),
    ],
)
def test_a_word_that_names_none_or_two_is_refused(words: list[str], says: str, hint: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        chosen(words, [record("one-1"), record("one-2")], "stop")
    (finding,) = refused.value.findings
    assert (finding.id, finding.hint) == ("LCH007", hint)
    assert finding.message.startswith(says)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("tiny", "tiny-30000"),
        ("Qwen/Qwen3-8B", "Qwen3-8B-30000"),
        ("/models/a model/", "a-model-30000"),
        ("../..", "server-30000"),
        ("x" * 300, "x" * 40 + "-30000"),
        ("$(rm -rf /)\x1b[31m\n'\"", "31m-30000"),
        ("\u6a21\u578b", "server-30000"),
    ],
)
def test_a_servers_name_is_a_plain_word(model: str, name: str) -> None:
    assert short_name(model, 30000) == name


def test_a_process_is_known_as_long_as_it_lives(sleeper: Any) -> None:
    process = sleeper()
    name = name_of(process.pid)
    assert name is not None
    assert name.life() is Life.ALIVE
    assert name.send(signal.SIGTERM)
    process.wait(30)
    assert name.life() is Life.GONE
    assert not name.send(signal.SIGTERM)
    assert name_of(process.pid) is None


def test_a_process_that_is_dead_and_not_collected_is_gone(sleeper: Any) -> None:
    process = sleeper()
    name = name_of(process.pid)
    assert name is not None
    os.kill(process.pid, signal.SIGKILL)
    assert wait_until(lambda: name.life() is Life.GONE, 30)


def test_a_number_that_was_used_again_is_another_process(sleeper: Any) -> None:
    process = sleeper()
    before = replace(own(), pid=process.pid, started="1")
    assert before.life() is Life.GONE
    assert not before.send(signal.SIGKILL)
    assert process.poll() is None


@pytest.mark.parametrize(
    ("change", "life"),
    [
        ({"host": "elsewhere"}, Life.ELSEWHERE),
        ({"namespace": "pid:[1]"}, Life.ELSEWHERE),
        ({"boot": "before"}, Life.GONE),
        ({"boot": "before", "namespace": "pid:[1]"}, Life.GONE),
    ],
)
def test_a_number_means_something_on_its_own_machine_only(change: dict[str, str], life: Life) -> None:
    name = replace(own(), **change)
    assert name.life() is life
    assert not name.send(signal.SIGTERM)


def test_without_proc_the_time_of_the_start_is_asked(sleeper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    process = sleeper()
    isdir = os.path.isdir
    monkeypatch.setattr(processes_module.os.path, "isdir", lambda path: path != "/proc/self" and isdir(path))
    name = name_of(process.pid)
    assert name is not None
    assert abs(float(name.started) - time.time()) < 300
    assert name.life() is Life.ALIVE
    process.kill()
    process.wait()
    assert name.life() is Life.GONE
