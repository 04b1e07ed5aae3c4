"""The memory as people read it: every part that is counted, in sizes that add up to the GPU's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sglang_hydra import ModelFacts
from sglang_hydra.fit.result import Fit
from sglang_hydra.show.memory import memory_lines, verdict
from tests.fit.machines import GIB, dense, sized
from tests.plans import planned

ROW = re.compile(r"^  (\S.*?) +(-?[\d.]+|\?)(?: +(.*))?$")
EAGLE = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
EAGLE |= {"speculative_num_draft_tokens": 4}


def shown(fitted: Fit) -> tuple[dict[str, str], str]:
    lines = ["".join(piece for piece, _ in line) for line in memory_lines(fitted, "h200")]
    rows = (ROW.match(line.rstrip()) for line in lines[1:])
    return {row[1]: row[2] for row in rows if row and "mem_fraction" not in row[1]}, "\n".join(lines)


@pytest.mark.parametrize(
    ("facts", "arguments", "options", "parts"),
    [
        ("deepseek_v3", {"tp_size": 8, **EAGLE}, {}, {"draft"}),
        ("qwen3_next_80b_a3b", {"tp_size": 4}, {"reserved_gib": 12.5}, {"states", "reserved"}),
        ("llama_3_1_8b", {"enable_lora": True, "max_lora_rank": 64}, {}, {"LoRA adapters"}),
        ("qwen2_5_vl_7b", {}, {}, set()),
    ],
)
def test_every_part_is_shown_and_the_sizes_add_up(
    facts: str, arguments: dict[str, Any], options: dict[str, Any], parts: set[str]
) -> None:
    fitted = sized("h200", facts, arguments, **options)
    rows, _ = shown(fitted)
    always = {"before loading", "weights", "KV cache", "request table", "workspaces", "CUDA graphs", "activations"}
    assert set(rows) == always | parts | {"left"}
    assert fitted.memory is not None
    assert sum(map(float, rows.values())) == pytest.approx(fitted.memory / GIB, abs=0.05 * len(rows))


def test_what_is_left_is_shown_with_its_error_bar_and_the_total() -> None:
    fitted = sized("h200", "llama_3_1_8b")
    _, screen = shown(fitted)
    assert fitted.error_gib is not None
    assert f"of 140.4, within {fitted.error_gib:.1f}" in screen
    assert "mem_fraction_static works from " in screen


def test_an_unknown_part_is_a_question_mark_and_not_zero() -> None:
    config = {name: value for name, value in (dense().config or {}).items() if name != "intermediate_size"}
    fitted = sized("h200", ModelFacts(config))
    rows, screen = shown(fitted)
    assert (rows["weights"], rows["left"]) == ("?", "?")
    assert "unknown: intermediate_size" in screen
    assert verdict(fitted) == "unknown: intermediate_size"


def test_a_tight_fit_is_called_so() -> None:
    interval = sized("h100", "qwen3_32b").interval
    assert interval is not None
    fitted = sized("h100", "qwen3_32b", {"mem_fraction_static": interval.high + 0.002})
    assert verdict(fitted) == "fits, tightly"


def test_a_tight_fit_names_changes_that_fit_well() -> None:
    typed = ("gpu=h100", "model=qwen3_32b")
    (finding,) = (item for item in planned(*typed, "mem_fraction_static=0.97").findings if item.id == "FIT002")
    assert finding.hint is not None
    for remedy in finding.hint.split("; or "):
        again = planned(*typed, "mem_fraction_static=0.97", *remedy.partition(": ")[0].split())
        assert "FIT002" not in {item.id for item in again.findings}
