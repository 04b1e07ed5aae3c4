"""mypy and pyright accept the examples, and find each mistake that examples/typed_face.py marks."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACE = "examples/typed_face.py"
EXAMPLES = [FACE, "examples/experiment_repo/run.py", "examples/verl_rollout/train.py"]


def marked() -> set[int]:
    lines = (ROOT / FACE).read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines) if "# type: ignore[" in line}


@pytest.mark.long
@pytest.mark.parametrize("file", EXAMPLES)
def test_mypy_finds_what_is_marked_and_nothing_else(file: str) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=1200, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.registry
@pytest.mark.long
def test_pyright_finds_what_is_marked_and_nothing_else(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "basedpyright"], check=True, timeout=600)
    command = [python.with_name("basedpyright"), "--level", "error", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, *EXAMPLES], cwd=ROOT, capture_output=True, encoding="utf-8", timeout=600, check=False
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert {Path(item["file"]).name for item in found} == {Path(FACE).name}
    assert {item["range"]["start"]["line"] for item in found} == marked()
