"""Every command that the README shows is run, and every screen in it and in docs/ is what really prints."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.forked import run_forked
from tests.readme import REPOSITORY, as_script, blocks, environment, run_block
from tests.run.launch.processes import free_port, wait_until
from tools import readme_screens

READY_WITHIN_S = 90
STOPPED_WITHIN_S = 30


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    programs = tmp_path / "programs"
    programs.mkdir()
    return environment(programs)


@pytest.fixture
def env_of_programs(tmp_path: Path) -> dict[str, str]:
    """Programs of their own, which signals reach."""
    programs = tmp_path / "programs"
    programs.mkdir()
    return environment(programs, forks=False)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    folder = tmp_path / "workplace"
    folder.mkdir()
    return folder


def test_every_block_says_how_it_is_tested() -> None:
    known = re.compile(r"run(: (package|make|server|client|bench))?|(file|screen): .+")
    assert [block for block in blocks() if not known.fullmatch(block.kind)] == []


def test_the_screens_are_what_the_commands_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readme_screens, "run_serve", run_forked)
    assert readme_screens.main(["--check"]) == 0, f"stale: make generate\n{capsys.readouterr().out}"


@pytest.mark.timeout(900)  # some sixty commands, each with a limit of its own
def test_its_scripts_and_programs_run_one_after_the_other(workplace: Path, env: dict[str, str]) -> None:
    for block in blocks("run", "file"):
        if block.kind == "run" or block.kind.startswith("file: "):
            assert "correct-horse" not in run_block(block, workplace, env)


def test_its_make_targets_exist() -> None:
    commands = [line.partition("#")[0].split() for block in blocks("run: make") for line in block.text.splitlines()]
    assert ["make", "serve"] in commands
    for command in commands:
        dry = subprocess.run(
            [*command, "--dry-run"], cwd=REPOSITORY, capture_output=True, encoding="utf-8", timeout=250, check=False
        )
        assert dry.returncode == 0, dry.stderr


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("start", "stopped"), [("README", 130), ("make", -signal.SIGINT)])
def test_its_server_answers_its_client_and_leaves_no_process(
    start: str, stopped: int, workplace: Path, env_of_programs: dict[str, str]
) -> None:
    (server,), (client,) = blocks("run: server"), blocks("run: client")
    port = str(free_port())
    command = {
        "README": [*server.text.splitlines()[-1].split(), f"port={port}"],
        "make": ["make", "serve", f"ARGS=port={port} hydra.run.dir={workplace}"],
    }[start]
    printed = workplace / "printed.txt"
    with printed.open("wb") as out:
        program = subprocess.Popen(
            command,
            cwd=REPOSITORY if start == "make" else workplace,
            env=env_of_programs,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    started = [psutil.Process(program.pid)]
    try:
        ready = wait_until(lambda: program.poll() is not None or b"Ready after" in printed.read_bytes(), READY_WITHIN_S)
        assert ready, printed.read_text(encoding="utf-8")
        assert program.poll() is None, printed.read_text(encoding="utf-8")
        started += started[0].children(recursive=True)
        answer = subprocess.run(
            ["bash", "-c", as_script(client.text.replace("30000", port))],
            env=env_of_programs,
            capture_output=True,
            encoding="utf-8",
            timeout=250,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.count("data: ") > 1, answer.stdout
        assert '"content"' in answer.stdout
        os.killpg(program.pid, signal.SIGINT)  # as Ctrl-C on a terminal: to the whole group
        assert program.wait(STOPPED_WITHIN_S) == stopped, printed.read_text(encoding="utf-8")
        assert psutil.wait_procs(started, timeout=STOPPED_WITHIN_S)[1] == []
    finally:
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.real
@pytest.mark.timeout(600)
def test_its_sweep_runs_and_is_reported(workplace: Path, env_of_programs: dict[str, str]) -> None:
    (block,) = blocks("run: bench")
    lines = [line for line in block.text.splitlines() if not line.startswith("pip ")]
    run = subprocess.run(
        ["bash", "-c", as_script("\n".join([*lines, ""]))],
        cwd=workplace,
        env=env_of_programs,
        capture_output=True,
        encoding="utf-8",
        timeout=500,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "6 points" in run.stdout
    assert (workplace / "multirun" / "tiny" / "report.html").is_file()
