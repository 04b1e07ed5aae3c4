"""docs/sweeps.md, up to how a sweep runs, is true: its screens, its commands, its file, the keys that it names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.settings.sweep import SweepNode
from sglang_hydra.measure.sweep.grid import read_grid
from sglang_hydra.measure.sweep.planning import plan_sweep
from sglang_hydra.measure.sweep.where import check_keys, read_where
from tests.commands import Run, runner
from tests.forked import run_forked
from tests.plans import requests, written
from tools import readme_screens

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "sweeps.md").read_text(encoding="utf-8").partition("\n## How it runs\n")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def test_the_screens_are_what_the_commands_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readme_screens, "run_serve", run_forked)
    code = readme_screens.main(["--check", str(REPOSITORY / "docs" / "sweeps.md")])
    assert code == 0, f"refresh them: tools/readme_screens.py docs/sweeps.md\n{capsys.readouterr().out}"


def test_the_commands_plan(run: Run) -> None:
    commands = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("sglang-hydra ")]
    assert commands
    for command in commands:
        printed = run(*shlex.split(command)[1:], "sweep.dry_run=true")
        assert printed.code == 0, printed.err


def test_the_file_is_a_sweep(tmp_path: Path) -> None:
    (content,) = blocks("yaml")
    composer = Composer([written(tmp_path, {"sweep/mine.yaml": content})])
    made = plan_sweep(composer, read_grid(composer, requests("gpu=h200", "model=qwen3_8b", "sweep=mine")), 1, {})
    assert (made.total, made.kept, made.starts) == (24, 24, 3)
    assert made.folder.name.startswith("chunks-")


def test_every_key_that_a_constraint_can_name_exists() -> None:
    table = PAGE[PAGE.index("| key | is |") : PAGE.index("If a key is unknown")]
    rows = [row for row in table.splitlines()[2:] if row.startswith("|")]
    keys = [key for row in rows for key in re.findall(r"`([\w.]+)`", row.split("|")[1])]
    assert len(keys) > 10
    check_keys(read_where(" and ".join(f"{key} == 1" for key in keys)))


def test_the_settings_that_it_names_are_there_with_these_values() -> None:
    settings = SweepNode()
    assert f"`sweep.start_seconds` ({settings.start_seconds:g})" in PAGE
    assert f"`sweep.point_seconds` ({settings.point_seconds:g})" in PAGE
    for name in re.findall(r"`sweep\.(\w+)", PAGE):
        assert hasattr(settings, name)
