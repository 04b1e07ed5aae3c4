"""Random lines through the whole planning path; tools/fuzz_overrides.py says what must hold, and runs many more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "fuzz_overrides.py"


def fuzz(*words: str, timeout: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *words],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=timeout,
        check=False,
    )


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
