"""Paths as one would type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_hydra.text import locations


def test_a_preset_is_named_alike_where_the_environment_lies_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / ".venv" / "lib" / "sglang_hydra" / "conf"
    monkeypatch.setattr(locations, "conf_dir", lambda: conf)
    monkeypatch.chdir(tmp_path)
    assert locations.shown_path(str(conf / "gpu" / "h200.yaml")) == "conf/gpu/h200.yaml"
    assert locations.shown_path(str(tmp_path / "mine" / "a.yaml")) == "mine/a.yaml"
    assert locations.shown_path("/nowhere/a.yaml") == "/nowhere/a.yaml"
