"""``launch.detach=true`` and the verbs for it, as a user runs them, with a fake SGLang in an environment of its own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import must_follow
from tests.planning.topology.fake_sglang import environment
from tests.run.launch.place import DEADLINE_S, ROOT, Place, alive, place_in
from tests.run.launch.processes import free_port, listens, marked, wait_until

KEY = "sk-never'seen\\4711"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the fake SGLang."""
    return environment(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def place(tmp_path: Path, python: Path) -> Iterator[Place]:
    with place_in(tmp_path, python) as made:
        yield made


def test_a_detached_server_stays_is_shown_and_is_stopped(place: Place) -> None:
    port = free_port()
    said = place.run(*place.detached("run", port=port))
    assert "loading weights" in said
    assert "Ready after" in said
    assert f"python serve.py stop tiny-{port}" in said
    assert listens(port)
    assert f"tiny-{port}" in place.run(sys.executable, "serve.py", "status")

    (server,) = place.status()
    assert (server["name"], server["condition"], server["url"]) == (f"tiny-{port}", "ready", f"http://127.0.0.1:{port}")
    assert server["run_folder"] == str(place.folder / "run")
    assert server["server_id"] == json.loads((place.folder / "run" / "plan.json").read_text())["server_id"]
    table = place.verb("status")
    assert [word for word in ("name", "url", "pid", "state", "since", "model", "run folder") if word in table] != []
    assert f"tiny-{port}" in table
    assert str(server["process"]["pid"]) in table

    assert "Load weight begin" in place.verb("logs")
    assert "Load weight begin" in place.verb("logs", str(port))
    assert "stopped after" in place.verb("stop", f"tiny-{port}")
    assert not listens(port)
    assert alive(place.folder) == []
    assert place.status() == []
    assert "No detached server runs here" in place.verb("status")
    assert not (place.folder / "run" / "supervisor.log").exists()


def test_two_of_a_kind_have_names_of_their_own_and_all_of_them_are_stopped_at_once(place: Place) -> None:
    ports = [free_port(), free_port()]
    for number, port in enumerate(ports):
        place.run(*place.detached(f"run{number}", port=port))
    assert {server["name"] for server in place.status()} == {f"tiny-{port}" for port in ports}
    assert "stop which one?" in place.verb("stop", code=2)
    stopped = json.loads(place.verb("stop", "all", "--json"))
    must_follow(stopped, "stop")
    assert [server["how"] for server in stopped["servers"]] == ["stopped", "stopped"]
    assert not any(map(listens, ports))
    assert alive(place.folder) == []
    assert "No detached server runs here" in place.verb("stop")


def test_without_waiting_the_command_returns_at_once(place: Place) -> None:
    port = free_port()
    said = place.run(*place.detached("run", "launch.wait=false", port=port))
    assert f"tiny-{port} is starting" in said
    assert wait_until(lambda: place.status()[0]["actual"] is not None, DEADLINE_S)
    (server,) = place.status()
    assert server["detail"] == server["actual"]["summary"]
    assert "3 of 3 as planned; 207 not in 0.5.2" in place.verb("status")
    written = json.loads((place.folder / "run" / "actual.json").read_text())
    must_follow(written, "actual")
    assert written["server_id"] == server["server_id"]
    place.verb("stop")


def test_a_server_that_cannot_be_compared_says_so_in_the_status(place: Place) -> None:
    port = free_port()
    place.run(*place.detached("run", "launch.wait=false", port=port), FAKE_SILENT="1")
    assert wait_until(lambda: place.status()[0]["findings"] != [], DEADLINE_S)
    assert [finding["id"] for finding in place.status()[0]["findings"]] == ["ACT003"]
    assert "ACT003" in place.verb("status")
    assert [server["condition"] for server in place.status()] == ["ready"]
    place.verb("stop")


def test_a_server_that_fails_to_start_says_why_and_can_be_asked_later(place: Place) -> None:
    port = free_port()
    said = place.run(*place.detached("run", port=port), code=4, FAKE_CRASH=str(place.folder / "crash"))
    assert "ENG008" in said
    assert "RuntimeError: made to fail" in said
    (server,) = place.status()
    assert (server["condition"], server["kind"]) == ("failed", "unknown")
    assert server["findings"][0]["id"] == "ENG008"
    assert "ENG008" in place.verb("status", f"tiny-{port}")
    assert "made to fail" in place.verb("logs")
    assert "it is forgotten" in place.verb("stop")
    assert place.status() == []


def test_a_server_that_dies_later_is_failed_in_the_status(place: Place) -> None:
    port = free_port()
    place.run(*place.detached("run", port=port))
    commands = {process: " ".join(process.cmdline()) for process in alive(place.folder)}
    (server,) = [one for one, words in commands.items() if f"--port {port}" in words and "guard.py" not in words]
    server.send_signal(signal.SIGSEGV)
    assert wait_until(lambda: place.status()[0]["condition"] == "failed", DEADLINE_S)
    (failed,) = place.status()
    assert (failed["kind"], failed["exit_code"]) == ("crash", 4)
    # The supervisor has written its last and is about to end.
    assert wait_until(lambda: alive(place.folder) == [], DEADLINE_S)


def test_a_taken_port_is_refused_before_anything_is_started(place: Place) -> None:
    port = free_port()
    place.run(*place.detached("run", port=port))
    said = place.run(*place.detached("second", port=port), code=3)
    assert f"port {port} is in use by process" in said
    assert f"or python serve.py stop tiny-{port}" in said
    assert not (place.folder / "second" / "server.log").exists()
    assert len(place.status()) == 1
    place.verb("stop")


@pytest.mark.corpus
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_server_belongs_to_its_command_until_it_is_ready(place: Place, number: signal.Signals) -> None:
    port = free_port()
    hang = "import time; time.sleep(600)"
    sitecustomize = place.folder / "slow"
    sitecustomize.mkdir()
    (sitecustomize / "python").write_text(
        f'#!/bin/sh\necho Load weight begin >&2\nexec "{sys.executable}" -c "{hang}"\n'
    )
    (sitecustomize / "python").chmod(0o755)
    slow = place.folder / "environment"
    slow.mkdir()
    (slow / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    (slow / "bin").symlink_to(sitecustomize)
    (slow / "lib" / "python3.11" / "site-packages" / "sglang-0.5.2.dist-info").mkdir(parents=True)
    argv = Place(place.folder, slow / "bin" / "python").detached("run", port=port)
    with subprocess.Popen(argv, cwd=ROOT, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        overdue = threading.Timer(DEADLINE_S, program.kill)
        overdue.start()
        assert program.stdout is not None
        assert any(b"loading weights" in line for line in program.stdout)
        program.send_signal(number)
        program.stdout.read()
        assert program.wait(DEADLINE_S) == (-9 if number == signal.SIGKILL else 130)
        overdue.cancel()
    assert wait_until(lambda: alive(place.folder) == [], DEADLINE_S)
    assert place.status() == []


def test_the_end_of_the_terminal_does_not_end_a_detached_server(place: Place) -> None:
    port = free_port()
    ours, theirs = pty.openpty()
    argv = place.detached("run", port=port)
    with subprocess.Popen(
        argv, cwd=ROOT, env=place.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as program:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):
            while chunk := os.read(ours, 1 << 16):
                said += chunk
        assert program.wait(DEADLINE_S) == 0, said
    os.close(ours)
    assert [server["condition"] for server in place.status()] == ["ready"]
    place.verb("stop")
    assert alive(place.folder) == []


def test_a_supervisor_that_is_killed_takes_its_server_with_it(place: Place) -> None:
    port = free_port()
    place.run(*place.detached("run", "launch.stop_timeout=2", port=port))
    (server,) = place.status()
    os.kill(server["process"]["pid"], signal.SIGKILL)
    assert wait_until(lambda: alive(place.folder) == [], DEADLINE_S)
    assert not listens(port)
    assert [server["condition"] for server in place.status()] == ["gone"]
    assert "had ended already" in place.verb("stop", "all")


@pytest.mark.thorough
def test_the_key_of_a_detached_server_is_in_no_file_and_on_no_command_line(place: Place) -> None:
    port = free_port()
    place.run(*place.detached("run", "api_key=${oc.env:MY_KEY}", "launch.wait=false", port=port), MY_KEY=KEY)
    assert wait_until(lambda: place.status()[0]["actual"] is not None, DEADLINE_S)
    readable = [" ".join(process.cmdline()) for process in alive(place.folder)]
    assert len(readable) >= 3
    readable += files_of(place)
    place.verb("stop")
    readable += files_of(place)
    assert not any(KEY in text or repr(KEY)[1:-1] in text for text in readable)


def files_of(place: Place) -> list[str]:
    """What the files there hold. One that is written anew meanwhile has another name for a moment."""
    texts = []
    for file in [path for path in place.folder.rglob("*") if path.is_file()]:
        with contextlib.suppress(FileNotFoundError):
            texts.append(file.read_text(errors="replace"))
    assert texts
    return texts


def test_logs_follow_a_server_until_it_ends(place: Place) -> None:
    port = free_port()
    place.run(*place.detached("run", port=port))
    argv = [sys.executable, "serve.py", "logs", "-f", str(port)]
    with subprocess.Popen(argv, cwd=ROOT, env=place.env, stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert any(b"Load weight begin" in line for line in following.stdout)
        place.verb("stop")
        following.stdout.read()
        assert following.wait(DEADLINE_S) == 0


def test_a_hostile_name_and_log_go_through_every_screen_unharmed(place: Place) -> None:
    name = "$(touch gone)'\"\n\x1b[2J[bold]"
    port = free_port()
    said = place.run(*place.detached("run", "served_model_name=${oc.env:NAME}", port=port), NAME=name)
    with (place.folder / "run" / "server.log").open("ab") as log:
        log.write(b"\x1b]0;owned\x07 [red]$(reboot)\x1b[2J\n")
    shown = [said, place.verb("status"), place.verb("logs"), place.verb("stop")]
    assert all("\x1b" not in text and "\x07" not in text for text in shown)
    assert "$(touch gone)" in shown[1]
    assert "\\x1b]0;owned\\x07 [red]$(reboot)\\x1b[2J" in shown[2]
    assert marked("gone") == []
