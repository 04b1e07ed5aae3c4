"""The screens of plan, fit and suggest at two widths, as they were committed in data/screens.json.

``UPDATE_GOLDEN=1 python -m pytest tests/show/test_screens.py`` writes them again; look at the difference before you
commit it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from sglang_hydra.planning.verdict import Verdict
from sglang_hydra.show.first_lines import launch_lines
from tests.commands import Run, runner
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2

GOLDEN = Path(__file__).parents[1] / "data" / "screens.json"
WIDTHS = (80, 120)
COMMANDS = {
    "plan gpu=h100 model=llama_3_1_70b tp_size=4": 0,
    "plan gpu=h200 model=gpt_oss": 0,
    "plan gpu=b200 model=deepseek_v3 tp_size=8 engine.version=0.5.23": 0,
    "plan gpu=h200 model=gpt_oss mem_fraction_static=0.5": 0,
    "plan gpu=h100 model=deepseek_v3 tp_size=16 nnodes=2": 0,
    "plan gpu=h200 model=gpt_oss tp_size=3 'api_key=correct horse'": 2,
    "plan gpu=h100 model=deepseek_v3 tp_size=8": 2,
    "plan gpu=h200 model=gpt_oss tpsize=4": 2,
    "plan -- --model-path Qwen/Qwen3-8B --tp 2": 2,
    "check gpu=h200 model=gpt_oss tp_size=16": 2,
    "fit gpu=h100 model=qwen3_8b fit.context=8192 fit.reserved_gib=20": 0,
    "suggest model=llama_3_1_70b gpu=h100 context=32k concurrency=64": 0,
}
"""Each command with its exit code."""
TO_BE_COPIED = re.compile(r"launch_server|launch_router|sglang-hydra (serve|plan|check) |\S{60,}")
"""A command, or a path: these are not broken into lines."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def test_the_screens_are_those_that_were_committed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    found: dict[str, list[str]] = {}
    for command, code in COMMANDS.items():
        for width in WIDTHS:
            monkeypatch.setenv("COLUMNS", str(width))
            printed = run(*shlex.split(command))
            assert printed.code == code, printed.err
            found[f"{command}, {width} columns"] = (printed.out + printed.err).splitlines()
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert list(found) == list(golden)
    for name, lines in found.items():
        assert lines == golden[name], name


@pytest.mark.parametrize("name", json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else [])
def test_a_screen_has_no_line_wider_than_the_terminal_but_what_is_to_be_copied(name: str) -> None:
    lines = json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    width = int(name.split()[-2])
    assert [line for line in lines if len(line) > width and not TO_BE_COPIED.search(line)] == []


def test_the_first_four_lines_of_a_plan_are_the_verdict_the_gpus_the_room_and_the_command() -> None:
    for name, lines in json.loads(GOLDEN.read_text(encoding="utf-8")).items():
        if name.startswith("plan") and lines[0] != "Findings":
            titles = [line.split()[0] for line in lines if re.match(r"\S", line)]
            assert titles[:4] == ["Launch", "GPUs", "Capacity", "Command"], name


def test_a_refused_plan_ends_with_the_corrected_command_and_no_secret() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    refused = [f"{command}, {width} columns" for command, code in COMMANDS.items() if code for width in WIDTHS]
    assert [name for name in refused if golden[name][-2] != "Corrected"] == []
    assert not any("correct horse" in line for lines in golden.values() for line in lines)


@pytest.mark.parametrize("length", [10, 71, 85, 95, 120, 300])
def test_a_reason_of_any_length_stands_beside_or_below_its_title(length: int) -> None:
    path = f"/{'x' * length}.json"
    lines = launch_lines(Verdict("no", f"{path} is no JSON"), "SGLang")
    assert "".join(content for line in lines for content, _ in line).split() == [
        "Launch",
        "no:",
        path,
        "is",
        "no",
        "JSON",
    ]
    assert [content for line in lines for content, style in line if style == "bold red"] == ["no"]
