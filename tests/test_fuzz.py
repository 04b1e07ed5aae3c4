"""Random lines through the whole planning path, and files of a known structure against every reader.

tools/fuzz_overrides.py and tools/fuzz_readers.py say what must hold, and run many more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
READERS = ("yaml", "folder", "settings", "config.json", "plan", "argument", "safetensors", "gguf", "script", "log")
MOST_MIB = 300


def fuzz(*words: str, timeout: int, tool: str = "fuzz_overrides.py") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOLS / tool), *words],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=timeout,
        check=False,
    )


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("kind", "count"), [("overrides", 200), ("argv", 150), ("document", 150), ("invocation", 1000)]
)
def test_every_line_ends_in_a_plan_or_in_findings(kind: str, count: int) -> None:
    done = fuzz("--kind", kind, "--count", str(count), "--seed", "20250912", timeout=280)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"{kind}: {count} lines" in done.stdout


@pytest.mark.long
def test_a_hundred_thousand_lines() -> None:
    done = fuzz("--count", "100000", "--seed", "1", "--kind", "overrides", timeout=3600)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def read_safely(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether no input ended the process, raised what its reader does not, or cost more than its budget."""
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert all(f"{reader}: " in done.stdout for reader in READERS)
    return int(done.stdout.rsplit(" MiB", 1)[0].rsplit("\n", 1)[1]) < MOST_MIB


@pytest.mark.thorough
def test_every_reader_ends_in_what_was_read_or_in_findings() -> None:
    assert read_safely(fuzz("--count", "600", "--seed", "26", timeout=280, tool="fuzz_readers.py"))


@pytest.mark.long
def test_twenty_thousand_files() -> None:
    done = fuzz("--count", "20000", "--seed", "7", timeout=3600, tool="fuzz_readers.py")
    print(done.stdout)
    assert read_safely(done)
