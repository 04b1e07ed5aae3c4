"""The public cases: logs of failures that were produced or put together from what the software prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.run.diagnose.classes import failure_classes
from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, Diagnosis, diagnose
from sglang_hydra.run.diagnose.lines import read_lines

DATA = Path(__file__).parents[2] / "data" / "diagnosis"
CASES: list[dict[str, Any]] = json.loads((DATA / "index.json").read_text(encoding="utf-8"))["cases"]
# Nothing but the exit state decides in these.
WITHOUT_LINE = {"host_oom", "stopped", "crash"}


def found_in(case: dict[str, Any]) -> Diagnosis:
    with (DATA / case["file"]).open("rb") as file:
        return diagnose(read_lines(file), case["exit_code"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: Path(case["file"]).stem)
def test_a_case_is_of_its_class_and_quotes_the_deciding_line(case: dict[str, Any]) -> None:
    found = found_in(case)
    assert found.kind == case["class"]
    assert found.version == case["release"]
    if case["line"] is not None:
        assert found.line is not None
        assert found.line.startswith(case["line"])
        assert found.line_number is not None
    elif found.known:
        assert found.kind in WITHOUT_LINE
        assert case["exit_code"] is not None


def test_there_are_enough_cases_of_enough_classes() -> None:
    failures = [case for case in CASES if case["class"] != UNKNOWN]
    assert len(failures) >= 60
    assert len({case["class"] for case in failures}) >= 20
    assert len({case["version"] for case in CASES}) >= 20
    assert {case["origin"] for case in CASES} == {"produced", "message"}
    assert sum(case["class"] == UNKNOWN for case in CASES) >= 8


def test_every_class_but_few_has_a_case() -> None:
    missing = {failure.kind for failure in failure_classes()} - {case["class"] for case in CASES}
    assert len(missing) <= 3, missing


def test_every_case_names_its_thread_and_how_it_was_made() -> None:
    for case in CASES:
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+", case["source"]), case["file"]
        assert len(case["recipe"]) > 15
        assert re.fullmatch(r"0\.[45]\.\d+(?:\.post\d+)?", case["version"])


def test_the_index_and_the_folder_agree() -> None:
    assert {case["file"] for case in CASES} == {f"logs/{file.name}" for file in (DATA / "logs").iterdir()}
    assert len({case["file"] for case in CASES}) == len(CASES)


PREFIXES: dict[str, Callable[[int, str], str]] = {
    "kubectl --timestamps": lambda number, line: f"2025-06-11T08:14:02.{number:09d}Z {line}",
    "kubectl --prefix": lambda number, line: f"[pod/sglang-0/server] {line}",
    "container runtime": lambda number, line: f"2025-06-11T08:14:02.{number:09d}+08:00 stderr F {line}",
    "docker compose": lambda number, line: f"sglang-1  | {line}",
    "docker json-file": lambda number, line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "t"}),
    "ray": lambda number, line: f"(SGLangEngine pid=952, ip=10.150.236.219) {line}",
    "torchrun": lambda number, line: f"[rank3]: {line}",
    "srun --label": lambda number, line: f"1: {line}" if line.strip() else line,
    "logging": lambda number, line: f"2025-06-11 08:14:02,530 - __main__ - INFO - {line}" if "[20" in line else line,
    "colours": lambda number, line: f"\x1b[31m{line}\x1b[0m",
    "Windows": lambda number, line: line + "\r",
    "loguru": lambda number, line: f"2025-06-11 08:14:02.123 | ERROR    | xinference.core:run:{number} - {line}",
    "a job's collector": lambda number, line: f"[2025-06-11T08:14:02+08:00] job-3da56 >> (SGLangEngine pid=9) {line}",
    "quoted": lambda number, line: f"> {line}",
}


@pytest.mark.corpus
@pytest.mark.parametrize("name", PREFIXES)
def test_what_stands_in_front_of_lines_changes_nothing(name: str) -> None:
    changed = {}
    for case in CASES:
        lines = (DATA / case["file"]).read_text(encoding="utf-8").split("\n")
        kind = diagnose([PREFIXES[name](*item) for item in enumerate(lines)], case["exit_code"]).kind
        if kind != case["class"]:
            changed[case["file"]] = kind
    assert changed == {}


@pytest.mark.thorough
def test_what_is_left_of_a_log_leads_to_no_other_class() -> None:
    wrong = {}
    for case in CASES:
        lines = (DATA / case["file"]).read_text(encoding="utf-8").split("\n")
        for kept in (lines[len(lines) // 2 :], lines[-25:], lines[: len(lines) // 2]):
            kind = diagnose(kept).kind
            if kind not in (case["class"], UNKNOWN):
                wrong[case["file"]] = kind
    # Of a warning about the driver and what came of it, the half may be left that only tells the second.
    assert set(wrong.values()) <= {"oom_gpu", "peer_lost", "missing_package", "no_gpu", "release_fault"}
    assert len(wrong) <= 5, wrong
