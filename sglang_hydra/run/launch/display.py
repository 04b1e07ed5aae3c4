"""Shows a server while it starts and runs: its own lines and how far it is."""

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

# Colours, which are left out; any other escape is spelled out.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# A reader that has gone away (``| head``), a closed terminal or a full disk is no reason to stop a server.
_GONE = contextlib.suppress(OSError, ValueError)


class Display:
    """Where a launcher reports; this one shows nothing. ``line`` is called from other threads, one call at a time."""

    def line(self, stream: str, text: str) -> None:
        """Takes one line that the server wrote to ``stream`` (``stdout`` or ``stderr``)."""

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        """Shows that the server is not ready yet; called several times a second."""

    def note(self, text: str) -> None:
        """Shows a line of our own."""

    def close(self) -> None:
        """Ends what is shown while waiting."""


def harmless(line: str) -> str:
    """Returns a line of somebody else's as it may go to a screen: no colours, control characters spelled out."""
    if line.isprintable():
        return line
    return "\t".join(map(printable, _COLOURS.sub("", line).split("\t")))


def write_lines(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    with _GONE:
        write(lines, stream)


def display_for(errors: TextIO | None = None) -> Display:
    """Returns a live display where stderr (or ``errors``) is a terminal, plain lines elsewhere."""
    errors = errors or sys.stderr
    return TerminalDisplay(errors) if errors.isatty() else PlainDisplay(errors)


class PlainDisplay(Display):
    """Lines as they come; a word on the progress every ``every_s`` seconds."""

    def __init__(self, errors: TextIO | None = None, output: TextIO | None = None, every_s: float = 10.0) -> None:
        self._errors, self._output = errors or sys.stderr, output or sys.stdout
        self._every_s = every_s
        self._next_s = every_s

    def line(self, stream: str, text: str) -> None:
        _write(self._output if stream == "stdout" else self._errors, harmless(text))

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        if elapsed_s >= self._next_s:
            self._next_s = elapsed_s + self._every_s
            self.note(_progress(elapsed_s, milestone))

    def note(self, text: str) -> None:
        _write(self._errors, harmless(text))


class TerminalDisplay(Display):
    """The server's lines scroll; below them is shown how long it has been starting and what it does."""

    def __init__(self, errors: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=errors, highlight=False)
        self._status: Status | None = None
        self._shown_at = 0.0

    def line(self, stream: str, text: str) -> None:
        if stream == "stdout" and not sys.stdout.isatty():
            _write(sys.stdout, harmless(text))
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

        # No markup and no :names: of pictures are read in it.
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
    encoding = stream.encoding or "utf-8"
    with _GONE:
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
