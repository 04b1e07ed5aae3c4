"""What is said of a server that failed: what happened, why, and a change that was planned clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_hydra.run.launch.failure import NOT_READY, diagnosis_of, failure_of, with_smallest_change
from sglang_hydra.run.launch.signals import describe_exit
from sglang_hydra.text.findings import Finding
from tests.plans import composer, planned, requests
from tests.run.launch.fake_server import CRASHES, STAGES

WHAT = "the server failed to start: exit code 1 after 3 s"


def lines(until: str, how: str) -> list[str]:
    """What a server writes that crashes at a stage."""
    stages = list(STAGES)
    return [*(STAGES[stage] for stage in stages[: stages.index(until) + 1]), *CRASHES[how]]


def test_a_known_failure_is_what_happened_and_why() -> None:
    failure = failure_of("ENG008", WHAT, lines("load", "memory"), 137, Path("/run/server.log"))
    happened, why = failure.findings
    assert failure.kind == "oom_load"
    assert (happened.message, happened.hint) == (WHAT, "its output is in /run/server.log")
    assert why.id == "DIA001"


def test_an_unknown_failure_is_what_happened_and_the_last_words() -> None:
    failure = failure_of("ENG008", WHAT, ["something", "RuntimeError: out of luck", "goodbye"], 1)
    (happened,) = failure.findings
    assert failure.kind == "unknown"
    assert happened.message == f"{WHAT}; its last line: RuntimeError: out of luck"
    assert happened.hint == "its output is above"


@pytest.mark.parametrize("said", [[], ["", "  "]])
def test_a_server_that_said_nothing_is_quoted_with_nothing(said: list[str]) -> None:
    assert failure_of("ENG010", WHAT, said, 1).findings[0].message == WHAT


def test_one_that_was_not_ready_for_no_known_reason_is_of_that_class() -> None:
    failure = failure_of("ENG009", "not ready", [STAGES["load"]], None, advice="launch.ready_timeout=60")
    assert (failure.kind, failure.diagnosis) == (NOT_READY, None)
    assert failure.findings[0].hint == "launch.ready_timeout=60; its output is above"


def test_the_change_that_is_offered_is_one_whose_plan_is_clean() -> None:
    typed = requests("gpu=h100", "model=qwen3_8b", "mem_fraction_static=0.95")
    plan = planned("gpu=h100", "model=qwen3_8b", "mem_fraction_static=0.95")
    failure = failure_of("ENG008", WHAT, lines("graphs", "graph"), 137)
    assert failure.kind == "oom_graph"
    found = with_smallest_change(failure.findings, failure.diagnosis, plan, composer(), typed)
    assert found[0] == failure.findings[0]
    first = str(found[1].hint).split("; or ")[0]
    name, _, rest = first.partition("=")
    assert name == "mem_fraction_static"
    value = rest.split()[0].rstrip(":,")
    assert float(value) < 0.95
    assert planned("gpu=h100", "model=qwen3_8b", f"mem_fraction_static={value}").launchable


def test_what_no_diagnosis_explains_stays_as_it_is() -> None:
    said = (Finding("error", "ENG008", "it ended"),)
    assert with_smallest_change(said, None, planned("gpu=h200", "model=qwen3_8b"), composer(), []) == said


def test_a_log_of_several_files_is_read_as_one(tmp_path: Path) -> None:
    told = lines("loaded", "memory")
    (tmp_path / "server.log.1").write_text("\n".join(told[:3]) + "\n")
    (tmp_path / "server.log").write_text("\n".join(told[3:]) + "\n")
    found = diagnosis_of(tmp_path / "server.log", 137)
    assert found is not None
    assert found.kind == "oom_kv"
    assert diagnosis_of(tmp_path / "nowhere.log", 1) is None


@pytest.mark.parametrize(
    ("lines", "kind", "by_the_system"),
    [
        ([], "host_oom", True),
        (["Received sigquit from a child process. It usually means the child failed."], "unknown", False),
        (
            ["ModuleNotFoundError: No module named 'xgrammar'", "Received sigquit from a child"],
            "missing_package",
            False,
        ),
    ],
)
def test_memory_is_named_only_where_nothing_else_ended_the_server(
    lines: list[str], kind: str, by_the_system: bool
) -> None:
    failure = failure_of("ENG008", f"the server failed to start: {describe_exit(-9)} after 9 s", lines, -9)
    assert failure.kind == kind
    assert failure.findings[0].message.startswith("the server failed to start: killed by SIGKILL")
    assert ("as the system does where memory runs out" in failure.findings[0].message) is by_the_system
