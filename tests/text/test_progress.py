"""How far a command is: one line on a terminal, which is erased; nothing where standard error is piped."""

from __future__ import annotations

import io
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sglang_hydra.text import progress
from sglang_hydra.text.progress import counted, growing


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    return stream


def test_what_is_counted_is_passed_on_and_the_line_is_erased(terminal: Terminal) -> None:
    assert list(counted("abc", "letters", 3)) == ["a", "b", "c"]
    shown = terminal.getvalue()
    assert "0 of 3 letters" in shown
    assert "2 of 3 letters, 0 s left" in shown
    assert shown.endswith("\r\x1b[K")


def test_what_is_short_shows_nothing_but_the_erasing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENT_S", 60.0)
    assert list(counted("abc", "letters", 3)) == ["a", "b", "c"]
    assert terminal.getvalue() == "\r\x1b[K"


def test_a_pipe_sees_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    assert list(counted("abc", "letters", 3)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_the_bytes_of_what_is_fetched_are_counted(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    with growing(tmp_path, 4 * 2**20, "SGLang 0.5.23"):
        (tmp_path / "part").write_bytes(b"x" * 2**20)
        deadline = time.monotonic() + 20
        while "1.0 of 4.0 MiB" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "SGLang 0.5.23: 1.0 of 4.0 MiB, 0 s" in terminal.getvalue()
