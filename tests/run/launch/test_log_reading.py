"""A log that is read while it turns over: nothing is lost, and nothing fails where its newest file has no name."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_hydra.run.launch import log as log_reading
from sglang_hydra.run.launch.log import BoundedLog, LogTail, log_lines, opened_log


@contextlib.contextmanager
def turning_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The moment in which the full file was renamed and the next one is not there; it comes at the first look."""
    older = path.with_name(f"{path.name}.1")
    path.replace(older)

    def look(_: float) -> None:
        path.write_bytes(b"new\n")

    with monkeypatch.context() as patch:
        patch.setattr(log_reading.time, "sleep", look)
        yield


def test_a_log_is_read_whole_while_it_turns_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"old\n")
    with turning_over(path, monkeypatch):
        assert list(log_lines(path)) == [b"old", b"new"]


def test_a_log_that_turns_over_between_two_looks_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, older = tmp_path / "server.log", tmp_path / "server.log.1"
    older.write_bytes(b"one\n")
    path.write_bytes(b"two\n")
    opened = log_reading._newest

    def turned(*words: object, **more: object) -> object:
        path.replace(older)
        path.write_bytes(b"three\n")
        return opened(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(log_reading, "_newest", turned)
    assert list(log_lines(path)) == [b"one", b"two", b"three"]


def test_a_log_that_never_comes_back_is_what_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "_TURNING_S", 0.02)
    (tmp_path / "server.log.1").write_bytes(b"old\n")
    assert list(log_lines(tmp_path / "server.log")) == [b"old"]
    assert list(log_lines(tmp_path / "none.log")) == []
    assert LogTail(tmp_path / "none.log").last(3) == []
    assert list(LogTail(tmp_path / "none.log").lines()) == []


def test_a_followed_log_loses_nothing_when_it_turns_over(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "server.log", limit=1000)
    log.write(b"old 1\nold 2\nold 3\n")
    tail = LogTail(log.path)
    assert tail.last(2) == ["old 2", "old 3"]
    seen: list[str] = []
    for number in range(300):
        log.write(b"line %d\n" % number)
        if number % 50 == 49:
            seen += list(tail.lines())
    log.close()
    assert seen == [f"line {number}" for number in range(300)]


def test_a_log_that_turned_over_twice_since_the_last_look_is_followed_from_the_older_file(tmp_path: Path) -> None:
    path, older = tmp_path / "server.log", tmp_path / "server.log.1"
    tail = LogTail(path)
    path.write_bytes(b"one\n")
    assert list(tail.lines()) == ["one"]
    kept = path.rename(tmp_path / "kept")  # its number is not given to another file meanwhile
    older.write_bytes(b"two\n")
    path.write_bytes(b"three\n")
    assert list(tail.lines()) == ["two", "three"]
    assert kept.exists()


def test_who_follows_a_log_outlives_the_moment_without_it(tmp_path: Path) -> None:
    path, older = tmp_path / "server.log", tmp_path / "server.log.1"
    path.write_bytes(b"one\n")
    tail = LogTail(path)
    assert tail.last(5) == ["one"]
    with path.open("ab", buffering=0) as file:
        path.replace(older)
        file.write(b"two\n")
        assert list(tail.lines()) == ["two"]
        file.write(b"three\n")
    assert list(tail.lines()) == ["three"]
    path.write_bytes(b"four\n")
    assert list(tail.lines()) == ["four"]
    path.write_bytes(b"5\n")  # cut short
    assert list(tail.lines()) == ["5"]


def test_a_log_that_is_written_to_meanwhile_is_followed_without_a_failure(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "server.log", limit=4000)
    tail = LogTail(log.path)
    over = threading.Event()

    def write() -> None:
        for number in range(4000):
            log.write(b"line %d\n" % number)
        over.set()

    writing = threading.Thread(target=write)
    writing.start()
    seen: list[str] = []
    while not over.is_set():
        seen += list(tail.lines())
        with opened_log(log.path) as files:
            assert files
    writing.join()
    seen += list(tail.lines())
    assert seen[-1] == "line 3999"
    log.close()
