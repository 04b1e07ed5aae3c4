"""What people mistype: the exit code, the first line of the answer, the hint, and that the command below it works."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglang_hydra.cli.main import entry
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2

ROWS: dict[str, dict[str, Any]] = {
    row["typed"]: row
    for row in yaml.safe_load((Path(__file__).parents[1] / "data" / "mistakes.yaml").read_text(encoding="utf-8"))
}
FILES = {
    "dashed.yaml": "gpu: h100\nmodel: qwen3_8b\ntp-size: 2\n",
    "good.yaml": "gpu: h100\nmodel: qwen3_8b\n",
    "nospace.yaml": "gpu:h100\nmodel:qwen3_8b\n",
    "tabs.yaml": "gpu: h100\n\ttp_size: 2\n",
}
PLANNED_INSTEAD = {"serve": "plan", "bench": "plan"}
"""Verbs that would start a server."""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["sglang-hydra"])
    (tmp_path / "adir").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")


def answer(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, list[str]]:
    """The exit code, and the lines of the answer with folded ones put together."""
    code = entry(words)
    shown = capsys.readouterr()
    lines: list[str] = []
    for line in (shown.err or shown.out).splitlines():
        if lines and line.startswith(" " * 12) and line.strip():
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return code, lines


def finding_and_hint(lines: list[str]) -> tuple[str, str | None]:
    at = next(at for at, line in enumerate(lines) if line.startswith(("  error ", "  warning ")))
    hints = [line.strip().removeprefix("hint: ") for line in lines[at:] if line.strip().startswith("hint: ")]
    return " ".join(lines[at].split()), next(iter(hints), None)


@pytest.mark.corpus
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_mistake_is_answered_with_what_to_type(row: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = answer(capsys, shlex.split(row["typed"]))
    first, hint = finding_and_hint(lines)
    assert (code, first, hint) == (row.get("exit", 2), row["first"], row.get("hint"))
    assert max(map(len, lines)) < 400


@pytest.mark.corpus
@pytest.mark.parametrize("row", [row for row in ROWS.values() if "works" in row], ids=str)
def test_the_command_below_a_mistake_works_as_it_stands(
    row: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines = answer(capsys, shlex.split(row["typed"]))
    assert lines[-2] == "Corrected"
    assert lines[-1] == f"  sglang-hydra {row['works']}"
    _, *words = shlex.split(lines[-1])
    verb = PLANNED_INSTEAD.get(words[0])
    words = [verb, *words[1:]] if verb else words if "=" not in words[0] else ["plan", *words]
    assert entry(words) == 0
    assert "\n  error " not in capsys.readouterr().out


def test_there_are_sixty() -> None:
    assert len(ROWS) >= 60
