"""Every command that the README shows is run, and every screen in it is what really prints."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.readme import REPOSITORY, as_script, blocks, environment

READY_WITHIN_S = 90
STOPPED_WITHIN_S = 30


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    programs = tmp_path / "programs"
    programs.mkdir()
    return environment(programs)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    folder = tmp_path / "workplace"
    folder.mkdir()
    return folder


def test_every_block_says_how_it_is_tested() -> None:
    known = re.compile(r"run(: (package|make|server|client))?|(file|screen): .+")
    assert [block for block in blocks() if not known.fullmatch(block.kind)] == []


def test_the_screens_are_what_the_commands_print() -> None:
    check = [sys.executable, "tools/readme_screens.py", "--check"]
    run = subprocess.run(check, cwd=REPOSITORY, capture_output=True, encoding="utf-8", timeout=100, check=False)
    assert run.returncode == 0, f"refresh them with tools/readme_screens.py\n{run.stdout}{run.stderr}"


def test_its_scripts_and_programs_run_one_after_the_other(workplace: Path, env: dict[str, str]) -> None:
    for block in blocks("run", "file"):
        if block.kind.startswith("file: "):
            path = workplace / block.kind.removeprefix("file: ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.kind == "run":
            program = ["bash", "-c", as_script(block.text)] if block.language == "bash" else ["python", "-c", block.text]
            run = subprocess.run(
                program, cwd=workplace, env=env, capture_output=True, encoding="utf-8", timeout=60, check=False
            )
            assert run.returncode == 0, f"{block.text}{run.stdout}{run.stderr}"
            assert "correct-horse" not in run.stdout + run.stderr


def test_its_make_targets_exist() -> None:
    commands = [line.partition("#")[0].split() for block in blocks("run: make") for line in block.text.splitlines()]
    assert ["make", "serve"] in commands
    for command in commands:
        dry = subprocess.run(
            [*command, "--dry-run"], cwd=REPOSITORY, capture_output=True, encoding="utf-8", timeout=60, check=False
        )
        assert dry.returncode == 0, dry.stderr


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Running:
    """A program in a process group of its own, and what it has printed so far."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str]) -> None:
        self.printed = ""
        self._ended = False
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, text: str, seconds: float) -> bool:
        """True once ``text`` was printed; False if the program ends or the time is over without it."""
        with self._news:
            self._news.wait_for(lambda: text in self.printed or self._ended, seconds)
            return text in self.printed

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def interrupt(self) -> int:
        """Ctrl-C, as a terminal sends it: to the whole group. Returns the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(STOPPED_WITHIN_S)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOPPED_WITHIN_S)
        self._reader.join(STOPPED_WITHIN_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._news:
                    self.printed += line
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


@contextlib.contextmanager
def running(command: list[str], folder: Path, env: dict[str, str]) -> Iterator[Running]:
    program = Running(command, folder, env)
    try:
        yield program
    finally:
        program.close()


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("start", "stopped"), [("README", 130), ("make", 0)])
def test_its_server_answers_its_client_and_leaves_no_process(
    start: str, stopped: int, workplace: Path, env: dict[str, str]
) -> None:
    (server,), (client,) = blocks("run: server"), blocks("run: client")
    port = str(free_port())
    last = server.text.splitlines()[-1]
    command = [*last.split(), f"port={port}"] if start == "README" else ["make", "serve", f"ARGS=port={port}"]
    folder = workplace if start == "README" else REPOSITORY
    with running(command, folder, env) as program:
        assert program.wait_for("Ready after", READY_WITHIN_S), program.printed
        answer = subprocess.run(
            ["bash", "-c", as_script(client.text.replace("30000", port))],
            env=env,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        assert '"content"' in answer.stdout, answer.stdout
        assert answer.stdout.count("data: ") > 1, answer.stdout
        descendants = program.descendants()
        assert descendants
        assert program.interrupt() == stopped, program.printed
        _, alive = psutil.wait_procs(descendants, timeout=STOPPED_WITHIN_S)
        assert alive == []
