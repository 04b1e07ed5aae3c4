"""Every flag of every release, typed in every release: read and refused as that release's own parser does.

The outcomes are recorded (tools/record_parsers.py), so no wheel is needed; ``registry`` asks the wheels again.
"""

from __future__ import annotations

import difflib
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.parser import parser_of
from sglang_hydra.arguments.reading import read

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "data" / "parsers.json.gz"
KINDS = {
    "ARG010": ("unknown", "refused"),
    "ARG011": ("ambiguous",),
    "ARG012": ("no value",),
    "ARG013": ("refused",),
    "ARG014": ("choice",),
    "ARG015": ("value",),
    "ARG016": ("unknown",),
    "ARG017": ("refused",),
    "ARG019": ("unknown", "ambiguous"),
}


@cache
def recording() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return content


def outcomes(version: str) -> Iterator[tuple[list[str], Any]]:
    """Each line with what the release's parser made of it: the values that it set, or the kind of refusal."""
    number = recording()["releases"].index(version)
    for line, changes in recording()["lines"].items():
        yield line.split(" "), [outcome for since, outcome in changes if since <= number][-1]


def read_as(version: str, line: list[str]) -> tuple[Any, list[str]]:
    """Our values, None where we refuse, and the ids of the refusal."""
    found = read(["--model-path", "m", *line], version)
    errors = [finding.id for finding in found.findings if finding.level == "error"]
    values = [value for name, value in found.values.items() if name != "model_path"]
    return (None if errors else values), errors


@pytest.mark.corpus
@pytest.mark.parametrize("version", recording()["releases"])
def test_a_line_is_read_and_refused_as_the_release_does(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difflib, "get_close_matches", lambda *args, **more: [])  # hints are slow, and tested elsewhere
    false_greens, false_reds, others = [], [], []
    for line, outcome in outcomes(version):
        values, ids = read_as(version, line)
        if isinstance(outcome, str):
            if values is not None:
                false_greens.append((line, outcome))
            elif outcome not in KINDS[ids[0]]:
                others.append((line, outcome, ids))
        elif values is None:
            false_reds.append((line, outcome, ids))
        elif values != [value for name, value in outcome.items() if name != "config"]:
            others.append((line, outcome, values))
    assert (false_greens, false_reds, others) == ([], [], [])


def test_the_recording_has_every_flag_that_the_table_has() -> None:
    first_words = {line.split(" ")[0] for line in recording()["lines"]}
    for version in recording()["releases"]:
        assert parser_of(version).options.keys() <= first_words, version


@pytest.mark.registry
def test_the_releases_still_answer_so() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "record_parsers.py"), "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0


OFFERS = {
    "--cuda-graph-max-bs 64": ("ARG011", "--cuda-graph-max-bs-decode 64"),
    "--cuda-graph-bs 1 2": ("ARG011", "--cuda-graph-bs-decode 1 2"),
    "--enable-ep-moe": ("ARG010", "--ep-size with the value of --tp-size"),
    "--enable-deepep-moe": ("ARG010", "--moe-a2a-backend deepep"),
    "--enable-flashinfer-cutlass-moe": ("ARG010", "--moe-runner-backend flashinfer_cutlass"),
    "--enable-triton-kernel-moe": ("ARG010", "--moe-runner-backend triton_kernel"),
    "--disaggregation-prefill-pp 2": ("ARG010", "tell each other their sizes"),
    "--max-micro-batch-size 3": ("ARG010", "--pp-max-micro-batch-size 3"),
    "--stream-output": ("ARG010", "--incremental-streaming-output"),
    "--tool-call-parser glm_47": ("ARG014", "--tool-call-parser glm47"),
    "--max-total-tokens 32kb": ("ARG013", "--max-total-tokens"),
    "--max-model-len 4096": ("ARG010", "--context-length 4096"),
}


@pytest.mark.parametrize("line", OFFERS)
def test_a_refusal_offers_the_words_of_the_release(line: str) -> None:
    (finding,) = read(["--model-path", "m", *line.split()], "0.5.23").findings
    id, offer = OFFERS[line]
    assert (finding.level, finding.id) == ("error", id)
    assert offer in (finding.hint or "")


def test_an_old_flag_is_taken_or_ignored_with_a_finding() -> None:
    found = read(["--model-path", "m", "--stream-output", "--collect-tokens-histogram"], "0.5.12")
    assert found.values == {"model_path": "m", "incremental_streaming_output": True}
    assert [(item.level, item.id, item.fields) for item in found.findings] == [
        ("warning", "IMP008", ("incremental_streaming_output",)),
        ("warning", "IMP008", ()),
    ]
    assert found.idle.keys() == {"--collect-tokens-histogram"}
    assert found.old == {"incremental_streaming_output": ("--stream-output",)}
