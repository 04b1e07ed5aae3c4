"""What CONTRIBUTING.md promises to one who adds a thing as it says, and nothing else: it works, or says what is
missing.

A check that is added in two places is in ``tests/rules/checks/test_releases.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.planning.choosing.catalog import gpu_classes
from sglang_hydra.run.diagnose.classes import Signature, failure_classes, read_classes
from tests.commands import Run, runner
from tests.plans import planned, written

VARIANT = "defaults: [h200]\nname: h200_96\nmemory_mib: 98304\n"
BARE = "name: bare\nvendor: nvidia\nmemory_mib: 98304\n"
LOGS = Path(__file__).parent / "data" / "diagnosis" / "logs"
MOST = 0.05
"""Of the recorded lines: ``Error``, the widest needle that we need, is in 4.6 % of them."""


def test_a_gpu_of_three_lines_is_planned_and_is_a_class_of_the_catalog(tmp_path: Path) -> None:
    using = Composer([written(tmp_path, {"gpu/h200_96.yaml": VARIANT})])
    made = planned("gpu=h200_96", "model=gpt_oss", using=using)
    assert (made.errors, made.gpu.name, made.gpu.memory_mib, made.gpu.count) == ((), "h200_96", 98304, 8)
    assert "h200_96" in [known.name for known in gpu_classes(using)]


def test_a_gpu_without_a_device_is_told_so_with_what_to_type(tmp_path: Path) -> None:
    using = Composer([written(tmp_path, {"gpu/bare.yaml": BARE})])
    (finding,) = planned("gpu=bare", "model=qwen3_8b", using=using).errors
    assert (finding.id, finding.fields) == ("DEV002", ("gpu.device",))
    assert "gpu=bare does not say its device" in finding.message
    assert "gpu.device=cuda" in str(finding.hint)
    assert not planned("gpu=bare", "model=qwen3_8b", "gpu.device=cuda", using=using).errors


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def test_an_argument_without_a_model_says_that_a_model_is_missing(run: Run) -> None:
    done = run("explain", "chunked_prefill_size", "gpu=h200")
    assert done.out.startswith("chunked_prefill_size: not resolved, as no model is named")


def recorded_lines() -> list[str]:
    files = sorted(LOGS.iterdir())
    lines = {line for file in files for line in file.read_text(encoding="utf-8", errors="replace").splitlines()}
    return sorted(lines)


def too_wide(signatures: Iterator[Signature], lines: list[str]) -> list[str]:
    """The signatures that fit so many lines that they tell nothing."""
    return [
        f"{one.needles} {one.pattern}"
        for one in signatures
        if sum(any(text in line and one.fits(line, text) for text in one.needles) for line in lines) > MOST * len(lines)
    ]


def test_no_signature_fits_nearly_every_line() -> None:
    known = (one for failure in failure_classes() for one in failure.signatures)
    assert too_wide(known, recorded_lines()) == []


@pytest.mark.parametrize("needle", ["in", "er", "20"])
def test_a_signature_that_decides_nothing_is_seen(needle: str) -> None:
    assert too_wide(iter([Signature((needle,), ".")]), recorded_lines())


@pytest.mark.parametrize("needle", ["", " ", "e"])
def test_a_signature_of_no_letters_is_refused_where_it_is_read(needle: str) -> None:
    row = {"what": "w", "meaning": "m", "advice": ["a"]}
    with pytest.raises(ValueError, match=r"mine\.yaml: DIA999: needle .* decides nothing"):
        read_classes(json.dumps({"DIA999 mine": {**row, "signatures": [{"needle": needle}]}}), "mine.yaml")
