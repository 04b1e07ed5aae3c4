"""Each signature decides a line of a public log, gives no log a wrong class, and believes no line that only quotes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sglang_hydra.run.diagnose.classes import Signature, failure_classes
from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, diagnose
from sglang_hydra.run.diagnose.lines import read_lines
from sglang_hydra.run.diagnose.reader import LogReader
from sglang_hydra.run.diagnose.verdict import decide
from tests.run.diagnose.recent import DATA, SITE, lines_of, rows

MOST = 300
# What the deciding line says is another class than what the whole thread shows: as the tables themselves say.
KNOWN_WRONG = {"shm_too_small": {"disk_full"}, "oom_gpu": {"oom_runtime"}, "oom_runtime": {"unsupported_backend"},
               "lora": {"release_fault"}, "graph_capture": {"release_fault"},
               "release_fault": {"unsupported_backend", UNKNOWN}}  # fmt: skip
READY = "[2026-06-11 08:16:00] The server is fired up and ready to roll!"


def logs() -> Iterator[tuple[list[str], int | None, str, tuple[str, ...]]]:
    """Every log of the tables: its lines, its exit code, its class, and classes that can be defended."""
    for case in json.loads((DATA / "index.json").read_text(encoding="utf-8"))["cases"]:
        with Path(DATA / case["file"]).open("rb") as file:
            yield list(read_lines(file)), case["exit_code"], case["class"], ()
    for name in ("recent", "recent_held_back", "held", "solved"):
        for row in rows(name):
            yield lines_of(row), None, row["class"], tuple(row.get("also", ()))


@cache
def decided() -> dict[tuple[str, Signature], list[tuple[str, str, tuple[str, ...]]]]:
    """For each signature the lines that it decides, each with the class of its log."""
    found: dict[tuple[str, Signature], list[tuple[str, str, tuple[str, ...]]]] = {}
    for lines, exit_code, kind, also in logs():
        reader = LogReader().read(lines)
        verdict = decide(reader.lives, exit_code)
        if verdict.failure is not None and verdict.found is not None and reader.others.name is None:
            key = (verdict.failure.kind, verdict.found.signature)
            found.setdefault(key, []).append((verdict.found.line.text, kind, also))
    return found


SIGNATURES = [(failure.kind, signature) for failure in failure_classes() for signature in failure.signatures]


def test_there_are_few_signatures() -> None:
    assert len(SIGNATURES) == len(set(SIGNATURES)) <= MOST


def test_every_signature_decides_a_line_of_a_public_log() -> None:
    assert [(kind, signature.needles[0]) for kind, signature in SIGNATURES if (kind, signature) not in decided()] == []


def test_no_signature_gives_a_log_a_wrong_class() -> None:
    wrong = {
        (kind, true, text[:80])
        for (kind, _), lines in decided().items()
        for text, true, also in lines
        if kind not in (true, *also) and true not in KNOWN_WRONG.get(kind, ())
    }
    assert wrong == set()


@pytest.mark.parametrize("quotes", ["request", "arguments", "retried"])
def test_no_signature_believes_a_line_that_only_quotes_its_own(quotes: str) -> None:
    """The look-alike of each signature: its own line, as a client sent it, as an argument's value, and tried again."""
    believed = {}
    for kind, signature in SIGNATURES:
        text = decided()[kind, signature][0][0]
        lines = {
            "request": [READY, f"[2026-06-11 08:16:01] Receive: obj=GenerateReqInput(rid='a', text={text!r})"],
            "arguments": [f"[2026-06-11 08:16:01] server_args=ServerArgs(model_path='m', chat_template={text!r})"],
            "retried": [f"[2026-06-11 08:16:01] WARNING: {text}. Retrying in 1 s."],
        }[quotes]
        if (found := diagnose(lines).kind) != UNKNOWN:
            believed[kind, signature.needles[0]] = found
    assert believed == {}


@pytest.mark.parametrize(
    ("place", "line", "kind"),
    [
        ("transformers/configuration_utils.py:get", "ValueError: rope needs a factor", "bad_config"),
        ("tokenizers/__init__.py:from_file", "Exception: no such model", "tokenizer"),
        ("sglang/srt/layers/quantization/x.py:apply", "ValueError: blocks of 3", "quantization"),
        ("sglang/srt/lora/x.py:load", "ValueError: the rank is above the pool's", "lora"),
        ("sglang/srt/models/x.py:__init__", "ValueError: Unsupported pooling: last", "unsupported_architecture"),
        ("sglang/srt/layers/attention/x.py:f", "ValueError: this path only takes pages", "unsupported_backend"),
        ("sglang/srt/disaggregation/x.py:f", "ValueError: the sizes differ", "pd_bootstrap"),
        ("tilelang/engine/x.py:lower", "RuntimeError: no such layout", "compile_failure"),
        ("torch/_inductor/x.py:f", "RuntimeError: something", "compile_failure"),
        # what Python raises by itself, and what no library of the table raises
        ("sglang/srt/layers/quantization/x.py:apply", "TypeError: x", "release_fault"),
        ("torch/nn/x.py:f", "RuntimeError: shapes differ", "release_fault"),
    ],
)
def test_the_library_that_raises_decides(place: str, line: str, kind: str) -> None:
    file, _, function = place.partition(":")
    lines = [
        "[2026-06-11 08:15:11 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "{SITE}/sglang/srt/managers/scheduler.py", line 3750, in run_scheduler_process',
        f'  File "{SITE}/{file}", line 71, in {function}',
        line,
        "",
    ]
    assert diagnose(lines).kind == kind
