"""A table on a terminal that is too narrow for it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from sglang_hydra.text import screen
from sglang_hydra.text.screen import table, text

ROWS = [[text(""), text("verdict"), text("KV tokens")], [text("gpu=h100"), text("fits " * 12), text("412,388")]]


@pytest.mark.parametrize(("wide", "lines", "widest"), [(120, 2, 83), (60, 3, 75)])
def test_a_row_that_does_not_fit_is_a_list(wide: int, lines: int, widest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: os.terminal_size((wide, 24)))
    shown = ["".join(content for content, _ in line) for line in table(ROWS)]
    assert (len(shown), max(map(len, shown))) == (lines, widest)
    assert shown[-1].endswith("412,388")


def test_a_pipe_gets_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert len(table(ROWS)) == 2
