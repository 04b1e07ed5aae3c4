"""What the site's archive holds of the recorded answers: all of them, without compression."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from sglang_hydra.releases import recorded

PARTS = Path(__file__).resolve().parents[2] / "site" / "parts.py"


@pytest.mark.parametrize("version", recorded.recorded_releases())
def test_recorded_answers_are_found_in_the_archive_too(version: str) -> None:
    spec = importlib.util.spec_from_file_location("site_parts", PARTS)
    assert spec is not None
    assert spec.loader is not None
    parts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(parts)
    packed = recorded.file_of(version).read_bytes()
    loose = parts.loosened(recorded.file_of(version))
    assert len(loose) > 3 * len(packed)
    before, after = recorded._Content(packed), recorded._Content(loose)
    assert after.lines == before.lines
    assert [after.part(at) for at in range(16)] == [before.part(at) for at in range(16)]
