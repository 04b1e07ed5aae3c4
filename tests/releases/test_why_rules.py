"""Our rules for 0.5.2 and what 0.5.2's own code does: the same changes, at the lines that the rules name."""

from __future__ import annotations

import pytest

from sglang_hydra.planning.comparing.installed import case_of
from sglang_hydra.releases import wheels
from sglang_hydra.releases.records import record_of
from sglang_hydra.releases.release import ask_release
from sglang_hydra.rules.order import ORDER
from tests.plans import planned, without_accelerator, without_engines

pytestmark = pytest.mark.registry

LINES = {rule.id: rule.lines for rule in ORDER}
ELSEWHERE: dict[str, str] = {}
"""Rules that cite other lines than those where the value is set, each with the reason. None does."""
PLANS = (
    "gpu=h200 model=llama_3_1_8b",
    "gpu=b200 model=deepseek_v3 tp_size=8",
    "gpu=h200 model=deepseek_v3 tp_size=8 dp_size=8 enable_dp_attention=true",
    "gpu=a100_80gb model=qwen3_30b_a3b tp_size=2",
    "gpu=mi300x model=llama_3_1_70b tp_size=4",
    "gpu=h100 model=gpt_oss_20b",
    "gpu=h200 model=llama_4_scout tp_size=8",
    "gpu=h200 model=deepseek_v3 tp_size=8 speculative_algorithm=EAGLE",
    "gpu=h100 model=qwen3_30b_a3b tp_size=2 moe_a2a_backend=deepep enable_eplb=true",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("words", PLANS)
def test_each_change_is_where_its_rule_says(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)
    record = record_of("0.5.2")
    assert record is not None
    wheels.fetch(record)
    plan = planned(*words.split(), "random_seed=42")
    (answer,) = ask_release("0.5.2", [case_of(plan, "0.5.2")], use_kept=False, why=True)
    assert answer.ok, answer.unanswered or answer.error
    by_rule = [(entry.field, entry.before, entry.after) for entry in plan.resolution.ledger]
    traced = {change.field: change for change in answer.changes}
    assert {name for name, _, _ in by_rule} == set(traced)
    wrong = []
    for entry in plan.resolution.ledger:
        found = [each for each in answer.changes if (each.field, each.after) == (entry.field, entry.after)]
        steps = [each.step for each in found if each.step is not None]
        lines = LINES[entry.rule]
        is_there = any(lines and lines[0] <= step.line <= lines[1] for step in steps)
        if entry.rule not in ELSEWHERE and not is_there:
            wrong.append((entry.rule, lines, [step.place for step in steps]))
    assert wrong == []
