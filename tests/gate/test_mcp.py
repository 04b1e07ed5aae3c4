"""``mcp``: its tools through the SDK's own client, over standard input and output."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglang_hydra.cli.mcp import TOOLS, answer
from sglang_hydra.compose.composer import Composer
from tests.commands import OF_THE_RUN, must_follow
from tests.readme import REPOSITORY

pytest.importorskip("mcp", reason="make test installs it")
TASKS = yaml.safe_load((REPOSITORY / "tests/data/mcp_tasks.yaml").read_text(encoding="utf-8"))
LONGEST = 12_000
"""Letters of a short answer."""
LAUNCH = "python -m sglang.launch_server "


def asked(tasks: Sequence[tuple[str, dict[str, Any]]], **env: str) -> list[Any]:
    """The answers of one server to all calls, as a client gets them; the first is the list of tools."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    kept = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_") or name in OF_THE_RUN}
    words = [str(REPOSITORY / "serve.py"), "mcp"]
    parameters = StdioServerParameters(
        command=sys.executable, args=words, env={**kept, "HF_HUB_OFFLINE": "1", **env}, cwd=REPOSITORY
    )

    async def talk() -> list[Any]:
        async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
            await session.initialize()
            found: list[Any] = [await session.list_tools()]
            for tool, arguments in tasks:
                found.append(await session.call_tool(tool, arguments))
            return found

    return asyncio.run(talk())


def content(result: Any) -> dict[str, Any]:
    assert not result.isError, result.content
    found: dict[str, Any] = json.loads(result.content[0].text)
    return found


def arguments(task: dict[str, Any]) -> dict[str, Any]:
    text = task.get("text", LAUNCH + task["cmd"] if "cmd" in task else "")
    return {"words": task["words"], "text": text}


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    return asked([(task["tool"], arguments(task)) for task in TASKS])[1:]


@pytest.mark.corpus
@pytest.mark.parametrize("number", range(len(TASKS)), ids=lambda number: f"{TASKS[number]['tool']}-{number}")
def test_a_task_of_a_thread_is_answered(answers: list[Any], number: int) -> None:
    task, found = TASKS[number], content(answers[number])
    assert [word for word in task["says"] if word not in found["answer"]] == [], found["answer"]
    assert found["ok"] is task.get("ok", found["ok"]), found["answer"]
    assert len(found["answer"]) < LONGEST


def test_there_are_thirty_tasks_and_each_tool_has_one() -> None:
    assert len(TASKS) == 30
    assert {task["tool"] for task in TASKS} == set(TOOLS)


def test_detail_is_the_record_of_the_verb() -> None:
    ours = {"words": ["gpu=h100", "model=qwen3_8b", "tp_size=3"], "detail": True}
    tools, plan, check, refused = asked([("plan", ours), ("check", ours), ("plan", {"words": ["x=1"], "detail": True})])
    assert {tool.name for tool in tools.tools} == set(TOOLS)
    for kind, result in (("plan", plan), ("check", check), ("findings", refused)):
        must_follow(content(result)["answer"], kind)


@pytest.mark.thorough
def test_a_client_corrects_a_broken_command_by_the_hint() -> None:
    command = f"{LAUNCH}--model-path Qwen/Qwen3-8B --tp 3"
    _, broken = asked([("check", {"words": ["gpu=h100"], "text": command})])
    said = content(broken)["answer"]
    assert "hint: tp_size=4" in said
    _, mended = asked([("check", {"words": ["gpu=h100"], "text": command.replace("--tp 3", "--tp 4")})])
    assert content(mended)["ok"] is True


def test_words_of_a_client_are_words_of_a_file(tmp_path: Path) -> None:
    program = tmp_path / "evil.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was_run\n")
    program.chmod(0o755)
    written = tmp_path / "out.yaml"
    ours = ["gpu=h100", "model=qwen3_8b"]
    calls = [
        [*ours, f"engine.python={program}"],
        [*ours, "served_model_name=${oc.env:CORP}"],
        [*ours, f"--output={written}"],
        [*ours, "-o", str(written)],
        [*ours, f"--trust={tmp_path}", f"engine.python={program}"],
        [*ours, "hydra.searchpath=[pkg://evil]"],
        [*ours, f"lock={program}"],
    ]
    found = asked([("plan", {"words": words}) for words in calls], CORP="not for you")[1:]
    said = [content(result)["answer"] for result in found]
    assert not (tmp_path / "was_run").exists()
    assert not written.exists()
    assert "not for you" not in str(found)
    assert ["SEC001" in said[0], "VAR001" in said[1], "CLI012" in said[2], "CLI012" in said[3]] == [True] * 4
    assert ["CLI012" in said[4], "SEC002" in said[5], "LCK001" in said[6]] == [True] * 3


@pytest.mark.thorough
def test_answers_leave_few_composers_behind() -> None:
    """A server that runs for days makes a composer, with all presets, for each answer."""

    def composers() -> int:
        gc.collect()
        return sum(isinstance(one, Composer) for one in gc.get_objects())

    before = composers()
    for port in range(30000, 30040):
        answer("check", ["gpu=h100"], f"{LAUNCH}--model-path Qwen/Qwen3-8B --port {port}", "", False)
    assert composers() - before <= 33
