"""Displays the lines and the progress of a server while it starts and runs."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from sglang_hydra.text.screen import Line, printable, write

if TYPE_CHECKING:
    from rich.status import Status

# Colours, which are removed; other escapes are spelled out.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# A reader that has gone (``| head``), a closed terminal or a full disk must not stop a server.
_GONE = contextlib.suppress(OSError, ValueError)


class Display:
    """The base display, which shows nothing. Other threads call ``line``, one call at a time."""

    def line(self, stream: str, text: str) -> None:
        """Shows one line that the server wrote to ``stream`` (``stdout`` or ``stderr``)."""

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        """Shows that the server is still starting; called several times a second."""

    def note(self, text: str) -> None:
        """Shows a line of our own."""

    def close(self) -> None:
        """Removes the progress display."""


def harmless(line: str) -> str:
    """Makes a foreign line safe for a screen: removes colours and spells out control characters."""
    if line.isprintable():
        return line
    return "\t".join(map(printable, _COLOURS.sub("", line).split("\t")))


def write_lines(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    with _GONE:
        write(lines, stream)


def display_for(errors: TextIO | None = None) -> Display:
    """Returns a live display if stderr (or ``errors``) is a terminal, else a plain one."""
    errors = errors or sys.stderr
    return TerminalDisplay(errors) if errors.isatty() else PlainDisplay(errors)


class PlainDisplay(Display):
    """Prints lines as they come, and the progress every ``every_s`` seconds."""

    def __init__(self, errors: TextIO | None = None, output: TextIO | None = None, every_s: float = 10.0) -> None:
        self._errors, self._output = errors or sys.stderr, output or sys.stdout
        self._every_s = every_s
        self._next_s = every_s

    def line(self, stream: str, text: str) -> None:
        _write(self._output if stream == "stdout" else self._errors, text)

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        if elapsed_s >= self._next_s:
            self._next_s = elapsed_s + self._every_s
            self.note(_progress(elapsed_s, milestone))

    def note(self, text: str) -> None:
        _write(self._errors, text)


class TerminalDisplay(Display):
    """Scrolls the server's lines; the line below them shows the elapsed time and the progress."""

    def __init__(self, errors: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=errors, highlight=False)
        self._status: Status | None = None
        self._shown_at = 0.0

    def line(self, stream: str, text: str) -> None:
        if stream == "stdout" and not sys.stdout.isatty():
            _write(sys.stdout, text)
        else:
            self._print(harmless(text))

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        with _GONE:
            if self._status is None:
                self._status = self._console.status("", spinner="line")
                self._status.start()
            now = time.monotonic()
            if now - self._shown_at >= 0.5:
                self._shown_at = now
                self._status.update(_progress(elapsed_s, milestone))

    def note(self, text: str) -> None:
        self._print(harmless(text), "bold")

    def _print(self, text: str, style: str = "") -> None:
        from rich.text import Text

        # The text may contain markup or :names: of emoji, which must stay as they are.
        with _GONE:
            self._console.print(Text(text, style), soft_wrap=True)

    def close(self) -> None:
        status, self._status = self._status, None
        if status is not None:
            with _GONE:
                status.stop()


def _progress(elapsed_s: float, milestone: str) -> str:
    return f"starting the server: {elapsed_s:.0f} s" + (f", {milestone}" if milestone else "")


def _write(stream: TextIO, text: str) -> None:
    with _GONE:
        print_line(stream, text)


def print_line(stream: TextIO, line: str) -> None:
    """Prints a foreign line, safe for a screen. Raises OSError or ValueError if nobody reads it."""
    encoding = stream.encoding or "utf-8"
    print(harmless(line).encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
