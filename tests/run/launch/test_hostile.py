"""Whatever a server, a model or a name says: screens get text, files get what was said, and nothing is run by it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_hydra.run.launch import control, servers
from sglang_hydra.run.launch.display import PlainDisplay, TerminalDisplay, harmless
from sglang_hydra.run.launch.servers import claim, forget, records, short_name
from tests.commands import must_follow
from tests.run.launch.test_servers import record

NASTY = [
    "$(reboot)",
    "`id`",
    "'\"",
    "\x1b[2J",
    "\x1b]0;x\x07",
    "[bold red]",
    ":smile:",
    "\x9b31m",
    "\r\n",
    "\0",
    "\ud800",
    "\u202e",
]
TEXT = st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=8)), max_size=6).map("".join)
OWN_FOLDER = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def is_shown(text: str) -> bool:
    """Whether a screen shows all of this and obeys none of it."""
    return all(char.isprintable() or char in "\t\n" for char in text)


@given(TEXT)
def test_a_line_becomes_harmless_and_stays_readable(line: str) -> None:
    shown = harmless(line)
    assert is_shown(shown)
    assert "\n" not in shown
    plain = re.sub(r"[^ -~]", "", re.sub("\x1b\\[[0-9;]*m", "", line))
    rest = iter(shown)
    assert all(char in rest for char in plain), "what can be read is there, in its order"


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_a_printable_line_is_left_as_it_is(line: str) -> None:
    assert harmless(line) == line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.lists(TEXT, max_size=4))
def test_both_displays_show_every_line_and_obey_none(lines: list[str]) -> None:
    errors, output, terminal = io.StringIO(), io.StringIO(), Terminal()
    plain, live = PlainDisplay(errors, output), TerminalDisplay(terminal)
    for line in lines:
        for display in (plain, live):
            display.line("stderr", line)
            display.note(line)
        plain.line("stdout", line)
    assert is_shown(errors.getvalue() + output.getvalue())
    assert output.getvalue().count("\n") == len(lines)
    # What rich adds itself is bold and plain again.
    assert is_shown(re.sub("\x1b\\[[01]m", "", terminal.getvalue()))


@given(TEXT, st.integers(0, 65535))
def test_a_servers_name_is_always_a_plain_word(model: str, port: int) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._][A-Za-z0-9._-]*-\d+", short_name(model, port))


@settings(suppress_health_check=OWN_FOLDER)
@given(TEXT, TEXT, TEXT)
def test_a_servers_file_keeps_what_it_was_told_and_the_table_is_harmless(
    tmp_path_factory: pytest.TempPathFactory, model: str, folder: str, milestone: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(servers.STATE_DIR_VARIABLE, str(tmp_path_factory.getbasetemp() / "hostile"))
        written = claim(record(model=model, run_folder=folder, milestone=milestone))
        try:
            assert records() == [written]
            content = (Path(servers.state_folder()) / "servers" / f"{written.name}.json").read_text()
            must_follow(json.loads(content), "server")
            table = control._status_lines([written], [control.condition_of(written)])
            assert all(is_shown(piece) for line in table for piece, _ in line)
        finally:
            forget(written)
