"""The pictures of a terminal show what their commands print today."""

from __future__ import annotations

import pytest

from tools.terminal_pictures import FOLDER, NAMES, ROOT, made


@pytest.mark.corpus
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_what_its_command_prints(name: str) -> None:
    svg = made(name)
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == svg, "python tools/terminal_pictures.py"
    assert "font-face" not in svg


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_it(name: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(f"images/{name}.svg" in page.read_text(encoding="utf-8") for page in pages)
