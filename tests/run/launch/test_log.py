"""A server's log: bounded, whatever the disk does, and with both ends of the story."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_hydra.run.launch import log as log_module
from sglang_hydra.run.launch.log import BoundedLog, log_files, older_files


def written(log: BoundedLog, first: int, last: int) -> None:
    for number in range(first, last):
        log.write(b"line %d\n" % number)


def test_what_fits_is_in_one_file(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "run" / "server.log", limit=1000)
    written(log, 0, 100)
    log.close()
    assert [file.name for file in log_files(log.path)] == ["server.log"]
    assert log.path.read_text().splitlines() == [f"line {number}" for number in range(100)]
    assert (log.problem, log.lost) == (None, 0)


def test_a_full_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "server.log", limit=1000)
    written(log, 0, 2000)
    log.close()
    files = log_files(log.path)
    assert [file.name for file in files] == ["server.log.start", "server.log.1", "server.log"]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert files[0].read_text().startswith("line 0\nline 1\n")
    rest = files[1].read_text() + files[2].read_text()
    first = int(rest.split()[1])
    assert rest.splitlines() == [f"line {number}" for number in range(first, 2000)]


def test_after_one_turn_no_line_is_there_twice(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "server.log", limit=1000)
    written(log, 0, 150)
    log.close()
    assert "".join(file.read_text() for file in log_files(log.path)).splitlines() == [f"line {n}" for n in range(150)]


def test_what_others_write_into_the_log_or_cut_from_it_spoils_nothing(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "server.log", limit=1000)
    log.write(b"ours\n")
    with log.path.open("ab") as other:
        other.write(b"theirs\n")
    log.write(b"ours again\n")
    assert log.path.read_bytes() == b"ours\ntheirs\nours again\n"
    os.truncate(log.path, 0)
    log.write(b"after\n")
    log.close()
    assert log.path.read_bytes() == b"after\n"


def test_a_second_run_in_the_same_folder_begins_anew(tmp_path: Path) -> None:
    for _ in range(2):
        log = BoundedLog(tmp_path / "server.log", limit=1000)
        written(log, 0, 300)
        log.close()
    second = BoundedLog(tmp_path / "server.log", limit=1000)
    second.write(b"new\n")
    second.close()
    assert [(file.name, file.read_text()) for file in log_files(second.path)] == [("server.log", "new\n")]


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    log = BoundedLog(Path("/dev/full"))
    written(log, 0, 10)
    log.close()
    assert log.problem == os.strerror(errno.ENOSPC)
    assert log.lost == 10


@pytest.mark.parametrize("place", ["a/file/in/the/way", "closed/server.log"])
def test_a_folder_that_cannot_be_made_costs_lines_and_nothing_else(tmp_path: Path, place: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("")
    (tmp_path / "closed").symlink_to("/proc/nowhere")
    log = BoundedLog(tmp_path / place)
    log.write(b"line\n")
    assert log.problem
    assert log.lost == 1


def test_writing_goes_on_when_there_is_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_RETRY_S", 0.0)
    folder = tmp_path / "run"
    log = BoundedLog(folder / "server.log", limit=200)
    log.write(b"before\n")
    folder.rename(tmp_path / "gone")
    folder.write_text("in the way")
    log.write(b"lost in a turn" * 20)
    log.write(b"lost\n")
    folder.unlink()
    log.write(b"after\n")
    log.close()
    assert log.lost == 2
    assert "[2 lines are missing here: " in log.path.read_text()
    assert log.path.read_text().endswith("after\n")


def test_what_comes_after_the_end_is_dropped(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "server.log")
    log.close()
    log.write(b"late\n")
    assert log.path.read_bytes() == b""


def test_a_limit_of_this_process_for_files_is_no_reason_to_stop(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from sglang_hydra.run.launch.log import BoundedLog\n"
        "log = BoundedLog(Path(sys.argv[1]))\n"
        "for number in range(100): log.write(b'x' * 99 + b'\\n')\n"
        "print(log.problem, log.lost)"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "server.log")], capture_output=True, text=True, preexec_fn=limit
    )
    assert done.stderr == ""
    assert done.stdout.strip() == f"{os.strerror(errno.EFBIG)} 50"


def test_older_files_are_named_after_the_log() -> None:
    assert [path.name for path in older_files(Path("run/server.log"))] == ["server.log.start", "server.log.1"]
