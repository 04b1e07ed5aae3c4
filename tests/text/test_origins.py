"""Where a value came from, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_hydra.text.origins import Origin


def test_the_line_is_that_of_the_file_which_has_this_name_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Origin("experiment", 2, file="mine.yaml", keys=("tp_size",))
    for folder, content in (("one", "tp_size: 2\n"), ("other", "gpu: h200\ntp_size: 2\n")):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Path("mine.yaml").write_text(content, encoding="utf-8")
        assert origin.place == f"mine.yaml:{content.count(chr(10))}"
    Path("mine.yaml").write_text("\n\n\ntp_size: 2\n", encoding="utf-8")
    assert origin.place == "mine.yaml:4"
    Path("mine.yaml").unlink()
    assert origin.place == "mine.yaml"
