"""A file that is there whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sglang_hydra.text.whole_file import write_whole


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / ("long" * 60 + ".json")
    write_whole(file, "one\r\n")
    write_whole(file, "two\n", mode=0o700)
    assert file.read_bytes() == b"two\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("content", ["half \ud800", "whole"])
def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path, content: str) -> None:
    there = tmp_path / "there"
    if content == "whole":
        (there / "inside").mkdir(parents=True)  # a folder with something in it is never replaced by a file
    else:
        there.write_text("kept")
    with pytest.raises((OSError, UnicodeError)):
        write_whole(there, content)
    assert list(tmp_path.iterdir()) == [there]
    assert there.is_dir() or there.read_text() == "kept"
