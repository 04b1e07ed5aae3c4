"""What an engine is told of a plan."""

from __future__ import annotations

import pytest

from tests.plans import H200, planned, without_engines


@pytest.fixture(autouse=True)
def no_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@pytest.mark.parametrize("name", ["max_queued_requests", "disaggregation_prefill_pp"])
def test_a_null_that_no_flag_can_say_is_not_silently_left_out(name: str) -> None:
    plan = planned(*H200, f"{name}=null")
    (finding,) = [item for item in plan.findings if item.level == "error"]
    assert finding.id == "ENG005"
    assert f"{name}=null" in finding.message
    assert not plan.launchable


def test_a_null_that_is_the_default_says_nothing() -> None:
    plan = planned(*H200, "context_length=null", "mem_fraction_static=null")
    assert plan.launchable
    assert not {"--context-length", "--mem-fraction-static"} & set(plan.command)
