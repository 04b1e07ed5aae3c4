"""What becomes of a server's output: lines, progress bars, keys, logs that stay within bounds, ports and displays."""

from __future__ import annotations

import io
import json
import os
import socket
from pathlib import Path

import pytest

from sglang_hydra.run.launch.display import PlainDisplay, TerminalDisplay, display_for
from sglang_hydra.run.launch.log import BoundedLog
from sglang_hydra.run.launch.output import Output
from sglang_hydra.run.launch.port import client_host, port_obstacle
from tests.run.launch.processes import free_port

KEY = "k'e\"y\\12345"


def shown(*chunks: bytes, secret: str | None = None, log: BoundedLog | None = None) -> list[str]:
    """The lines that a server's output becomes, written in these chunks."""
    lines: list[str] = []
    output = Output(lambda stream, text: lines.append(text), {"begin": "beginning", "end": "ending"}, log, secret)
    reading, writing = os.pipe()
    output.follow("stdout", os.fdopen(reading, "rb"))
    with os.fdopen(writing, "wb", buffering=0) as pipe:
        for chunk in chunks:
            pipe.write(chunk)
    output.close(10)
    assert output.lines == lines
    return lines


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"on", b"e\ntw", b"o"], ["one", "two"]),
        ([b"\n\n"], ["", ""]),
        ([b" 10%\r 50%\r100%\nnext\r\n"], ["100%", "next"]),
        ([b"caf\xc3\xa9 \xff\n"], ["caf\u00e9 \ufffd"]),
    ],
)
def test_output_becomes_lines(chunks: list[bytes], lines: list[str]) -> None:
    assert shown(*chunks) == lines


def test_a_line_without_end_is_cut_into_pieces() -> None:
    lines = shown(b"x" * 200_000)
    assert "".join(lines) == "x" * 200_000
    assert max(map(len, lines)) <= 2 * (1 << 16)


@pytest.mark.parametrize("spelled", [KEY, repr(KEY), json.dumps(KEY), f"Bearer {KEY},"])
def test_a_key_is_blotted_out_however_it_is_spelled(spelled: str) -> None:
    (line,) = shown(f"it is {spelled} indeed\n".encode(), secret=KEY)
    assert "***" in line
    assert "12345" not in line


@pytest.mark.parametrize("size", range(1, 41))
def test_a_key_is_blotted_out_across_the_pieces_of_an_endless_line(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.read
    monkeypatch.setattr("sglang_hydra.run.launch.output._LINE_LIMIT", 5)
    monkeypatch.setattr("sglang_hydra.run.launch.output.os.read", lambda fd, _: read(fd, size))
    assert "".join(shown(f"<{KEY}>".encode() * 300, secret=KEY)) == "<***>" * 300


def test_a_log_stays_within_twice_its_limit_and_keeps_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "run" / "server.log"
    shown(b"".join(b"line %d\n" % number for number in range(1000)), log=BoundedLog(path, limit=1000))
    older = path.with_name("server.log.1")
    assert path.stat().st_size <= 1000
    assert older.stat().st_size <= 1000
    text = older.read_text() + path.read_text()
    assert text.endswith("line 998\nline 999\n")


def test_plain_progress_speaks_now_and_then() -> None:
    said = io.StringIO()
    display = PlainDisplay(said, said, every_s=10)
    for second in range(0, 35, 5):
        display.waiting(second, "loading weights" if second > 15 else "")
    assert said.getvalue().splitlines() == [
        "starting the server: 10 s",
        "starting the server: 20 s, loading weights",
        "starting the server: 30 s, loading weights",
    ]


def test_the_two_streams_stay_apart() -> None:
    errors, output = io.StringIO(), io.StringIO()
    display = PlainDisplay(errors, output)
    display.line("stdout", "[an answer]")
    display.line("stderr", "a log line")
    assert (output.getvalue(), errors.getvalue()) == ("[an answer]\n", "a log line\n")


def test_a_reader_that_has_gone_away_stops_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(os.devnull, "w") as nowhere:
        gone = os.fdopen(writing, "w")
        display = PlainDisplay(nowhere, gone)
        display.line("stdout", "x")
        display.line("stdout", "y")
        with pytest.raises(BrokenPipeError):
            gone.close()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_lines_and_how_long_it_has_been() -> None:
    terminal = Terminal()
    display = display_for(terminal)
    assert isinstance(display, TerminalDisplay)
    display.waiting(3, "loading weights")
    display.line("stderr", "[bold]not markup[/bold] :smile:")
    display.note("ready")
    display.close()
    display.close()
    for text in ("starting the server: 3 s, loading weights", "[bold]not markup[/bold] :smile:", "ready"):
        assert text in terminal.getvalue()


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(display_for(io.StringIO()), PlainDisplay)


def test_a_free_port_is_no_obstacle_and_stays_free() -> None:
    port = free_port()
    assert port_obstacle("127.0.0.1", port) is None
    assert port_obstacle("127.0.0.1", port) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_a_busy_port_is_an_obstacle_for_every_host_that_covers_it(host: str) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen(1)
        finding = port_obstacle(host, busy.getsockname()[1])
        assert finding is not None
        assert finding.id == "ENG006"
        assert f"({Path('/proc/self/comm').read_text().strip()})" in finding.message


@pytest.mark.parametrize(
    ("host", "port", "fields"),
    [("192.0.2.1", 0, ("host",)), ("no such host.invalid", 0, ("host",)), ("127.0.0.1", 70000, ("port",))],
)
def test_where_nobody_can_listen_is_said(host: str, port: int, fields: tuple[str, ...]) -> None:
    finding = port_obstacle(host, port)
    assert finding is not None
    assert (finding.id, finding.fields) == ("ENG007", fields)


@pytest.mark.parametrize(
    ("host", "reached_at"),
    [("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("::", "::1"), ("10.0.0.5", "10.0.0.5"), ("localhost", "localhost")],
)
def test_a_client_here_knows_where_to_go(host: str, reached_at: str) -> None:
    assert client_host(host) == reached_at
